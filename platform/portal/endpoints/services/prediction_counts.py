"""How many predictions endpoints have answered in a span of days."""

from collections.abc import Collection, Mapping
from datetime import date

from django.db.models import Sum

from portal.endpoints.models import AnsweredDay


def answered_between(
    *, projects: Collection[str] | None, first: date, last: date
) -> Mapping[tuple[str, str], int]:
    """Return predictions answered from day to day (UTC), by (id of the project, endpoint's name).

    Of some projects or of all; endpoints that had one name one after the other count together.
    """
    days = AnsweredDay.objects.filter(day__range=(first, last))
    if projects is not None:
        days = days.filter(endpoint__project__in=projects)
    sums = days.order_by().values_list("endpoint__project", "endpoint__name")
    return {
        (project, name): int(answered)
        for project, name, answered in sums.annotate(all=Sum("answered"))
    }
