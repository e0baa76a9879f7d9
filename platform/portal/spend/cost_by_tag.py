"""Cost of experiments, endpoints and tags: sums of the ledger by label, and live cost."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from django.db.models import Q, QuerySet, Sum

from portal.spend.ledger import Source
from portal.spend.models import LabelTotal
from portal.spend.models.ledger import TAG
from portal.workloads.ports import groupings

LABELS_SHOWN = 50
# Project, part, key. The project is empty for tags, which are summed over all projects.
Label = tuple[str, str, str]


def top_by_cost(of_projects: Q, periods: Sequence[str]) -> Counter[Label]:
    """Return the top labels of each part by cost, as far as it is in the ledger.

    Where a part has more labels than are shown, one more than that is returned.
    """
    counter: Counter[Label] = Counter()
    for part in (TAG, *groupings()):
        sums = _sums(of_projects, periods).filter(part=part)
        if part != TAG and len(periods) == 1:
            rows: Iterable[Any] = sums.order_by("-nano_usd").values_list(
                "project", "key", "nano_usd"
            )[: LABELS_SHOWN + 1]
        else:
            rows = _grouped(sums, part).order_by("-all")[: LABELS_SHOWN + 1]
        counter |= _count_labels(part, rows)
    return counter


def add_live(
    value: Counter[Label], late: Counter[Label], of_projects: Q, periods: Sequence[str]
) -> None:
    """Add the cost not in the ledger yet, also of labels that are not among the top so far."""
    missing: dict[str, set[str]] = {}
    for label in late:
        if label not in value:
            missing.setdefault(label[1], set()).add(label[2])
    for part, keys in missing.items():
        rows = _grouped(_sums(of_projects, periods).filter(part=part, key__in=keys), part)
        for label, nano_usd in _count_labels(part, rows).items():
            if label in late and label not in value:
                value[label] = nano_usd
    value.update(late)


def labels_of(of: Source) -> list[Label]:
    """Return the labels that the lines of a source count in."""
    return [("" if part == TAG else of.project, part, key) for part, key in of.labels]


def _sums(of_projects: Q, periods: Sequence[str]) -> QuerySet[LabelTotal]:
    return LabelTotal.objects.filter(of_projects, period__in=periods)


def _grouped(sums: QuerySet[LabelTotal], part: str) -> "QuerySet[Any, Any]":
    names = ("key",) if part == TAG else ("project", "key")
    grouped: QuerySet[Any, Any] = sums.order_by().values_list(*names).annotate(all=Sum("nano_usd"))
    return grouped


def _count_labels(part: str, rows: Iterable[Any]) -> Counter[Label]:
    if part == TAG:
        return Counter({("", part, key): int(nano_usd) for key, nano_usd in rows})
    return Counter({(project, part, key): int(nano_usd) for project, key, nano_usd in rows})
