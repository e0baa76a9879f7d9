"""Counts of the predictions that endpoints answered in a span of days."""

from collections.abc import Collection, Mapping
from datetime import date

from django.db.models import Sum

from portal.endpoints.models import AnsweredDay


def count_predictions(
    *, projects: Collection[str] | None, first: date, last: date
) -> Mapping[tuple[str, str], int]:
    """Return predictions answered from `first` to `last` (UTC), by (project id, endpoint name).

    `projects` None means all projects. Endpoints that had the same name one after the other count
    together.
    """
    days = AnsweredDay.objects.filter(day__range=(first, last))
    if projects is not None:
        days = days.filter(endpoint__project__in=projects)
    sums = days.order_by().values_list("endpoint__project", "endpoint__name")
    return {
        (project, name): int(answered)
        for project, name, answered in sums.annotate(all=Sum("answered"))
    }
