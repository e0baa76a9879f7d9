"""Asking for runs: what is typed, made into a search."""

from collections.abc import Sequence
from dataclasses import dataclass

from portal.core.errors import InvalidInput
from portal.experiments.factories import tracker
from portal.experiments.filters import RunField, parse_field, parse_filter
from portal.experiments.ports import NEWEST, RunFacts, RunSearch, SortOrder, Stage
from slipway.schemas.base import forbidden_character

MOST_COLUMNS = 60
MOST_WORDS, MOST_SEARCHED = 10, 200


@dataclass(frozen=True)
class RunComparison:
    """Runs side by side. `differing` parameters are not the same in all, `common` ones are."""

    runs: Sequence[RunFacts]
    differing: Sequence[str]
    common: dict[str, str]
    metrics: Sequence[str]


def search_of(
    *,
    project_id: str,
    experiments: Sequence[int] = (),
    filter_text: str = "",
    words: str = "",
    order: str = "",
    columns: Sequence[str] | None = (),
    stage: Stage = Stage.ACTIVE,
    limit: int = 50,
    cursor: str | None = None,
) -> RunSearch:
    """Parse a search. Raises InvalidInput with the position of a mistake.

    `words` are searched for in names, persons, tags, parameters and ids.
    `order` is a field, with a `-` in front for descending. `columns` None means all that is logged.
    """
    if columns is not None and len(columns) > MOST_COLUMNS:
        raise InvalidInput(
            f"At most {MOST_COLUMNS} columns can be shown.",
            field="columns",
            next_step="Choose fewer.",
        )
    fields = None
    if columns is not None:
        fields = tuple(dict.fromkeys(parse_field(text, name="columns") for text in columns))
    return RunSearch(
        project_id=project_id,
        experiment_ids=tuple(experiments),
        conditions=parse_filter(filter_text),
        words=_words_of(words),
        order=_sort_order(order),
        stage=stage,
        columns=fields,
        limit=limit,
        cursor=cursor,
    )


def _words_of(text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(text.split()))
    if len(text) > MOST_SEARCHED or len(words) > MOST_WORDS or forbidden_character(text):
        raise InvalidInput(
            "This text cannot be searched.",
            field="search",
            next_step=f"Use at most {MOST_WORDS} words and {MOST_SEARCHED} characters.",
        )
    return words


def _sort_order(text: str) -> SortOrder:
    if not text:
        return NEWEST
    return SortOrder(_field(text.removeprefix("-")), descending=text.startswith("-"))


def _field(text: str) -> RunField:
    field = parse_field(text, name="order")
    if field.kind == "datasets":
        raise InvalidInput(
            "Runs cannot be sorted by dataset.",
            field="order",
            next_step="Sort by a metric, parameter, tag or attribute.",
        )
    return field


def compare(*, project_id: str, run_ids: Sequence[str]) -> RunComparison:
    """Return runs in use side by side, in the order asked for. Unknown ones are left out."""
    runs = tracker().runs(project_id, run_ids)
    values: dict[str, set[str | None]] = {}
    for name in dict.fromkeys(name for run in runs for name in run.params):
        values[name] = {run.params.get(name) for run in runs}
    metrics = dict.fromkeys(name for run in runs for name in run.metrics)
    return RunComparison(
        runs=runs,
        differing=sorted(name for name, items in values.items() if len(items) > 1),
        common={
            name: str(next(iter(items)))
            for name, items in sorted(values.items())
            if len(items) == 1
        },
        metrics=sorted(metrics),
    )
