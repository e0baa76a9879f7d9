"""Parameters and metrics of compared runs as a table: a row for each value, a column for each run.

Rows that differ come first. Every number is compared with that of the baseline run.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from django.http import HttpRequest

from portal.core.errors import InvalidInput
from portal.experiments.filters import FieldKind, RunField, parse_field
from portal.experiments.ports import RunFacts
from portal.web.experiments.presenters.runs import RunRow, number, row_of

BASE, ONLY, SORT, FIND, START = "base", "only", "sort", "find", "row"
# A page of the table has about so many cells, and always LEAST_ROWS rows.
MOST_CELLS = 6_000
LEAST_ROWS, MOST_ROWS = 20, 200
LONGEST_TEXT = 120
_MOST_EXACT_PERCENT = 1e6
_MINUS = "\u2212"
Value = float | str | None


@dataclass(frozen=True)
class ValueCell:
    """A value of a run. `text` is empty if it was not logged.

    `difference` and `percent` are those from the baseline, empty where there are none: the
    difference of a text, of NaN and of the infinities, and the percentage of 0.
    """

    text: str
    title: str = ""
    differs: bool = False
    difference: str = ""
    percent: str = ""


@dataclass(frozen=True)
class ValueRow:
    """A parameter or metric. `cells` are in the order of the runs, the baseline's first."""

    field: RunField
    differs: bool
    cells: Sequence[ValueCell]
    sort_value: str
    aria_sort: str

    @property
    def kind(self) -> str:
        """The kind of the value, as people call it."""
        return "metric" if self.field.kind is FieldKind.METRIC else "parameter"


@dataclass(frozen=True)
class ValueTable:
    """A page of the table. `matching` rows are in all pages, `differing` of `total` differ.

    `kept` are the other parameters of the address. `previous` and `following` are the starts of
    other pages, None where there are none.
    """

    runs: Sequence[RunRow]
    rows: Sequence[ValueRow]
    total: int
    differing: int
    matching: int
    start: int
    previous: int | None
    following: int | None
    base: str
    only: bool
    sort: str
    find: str
    fault: str
    kept: Sequence[tuple[str, str]]

    @property
    def end(self) -> int:
        """Number of the last row of the page, from 1 on."""
        return self.start + len(self.rows)


def value_table(request: HttpRequest, runs: Sequence[RunFacts]) -> ValueTable | None:
    """Return the table that the address requests, or None without runs."""
    if not runs:
        return None
    get = request.GET
    base = next((run for run in runs if run.id == get.get(BASE)), runs[0])
    fields = _fields(runs)
    sort, fault = _sort_of(get.get(SORT, ""), fields)
    ordered = [base, *_sorted([run for run in runs if run is not base], sort, get.get(SORT, ""))]
    words, only = get.get(FIND, "").strip(), get.get(ONLY) == "1"
    differing = [field for field in fields if _differs(field, runs)]
    different = set(differing)
    shown = differing if only else [*differing, *(it for it in fields if it not in different)]
    if words:
        shown = [field for field in shown if words.lower() in field.key.lower()]
    length = max(LEAST_ROWS, min(MOST_ROWS, MOST_CELLS // len(runs)))
    start = _start_of(get.get(START, ""), len(shown))
    page = shown[start : start + length]
    return ValueTable(
        runs=[row_of(run, ()) for run in ordered],
        rows=[
            ValueRow(
                field=field,
                differs=field in different,
                cells=_cells(field, ordered),
                sort_value=_next_sort(field, get.get(SORT, "")),
                aria_sort=_aria_sort(field, get.get(SORT, "")),
            )
            for field in page
        ],
        total=len(fields),
        differing=len(differing),
        matching=len(shown),
        start=start,
        previous=max(0, start - length) if start else None,
        following=start + length if start + length < len(shown) else None,
        base=base.id,
        only=only,
        sort=get.get(SORT, "") if sort else "",
        find=words,
        fault=fault,
        kept=[
            (name, text)
            for name, texts in get.lists()
            for text in texts
            if name not in {BASE, ONLY, SORT, FIND, START}
        ],
    )


def _fields(runs: Sequence[RunFacts]) -> list[RunField]:
    params = sorted({name for run in runs for name in run.params})
    metrics = sorted({name for run in runs for name in run.metrics})
    return [
        *(RunField(FieldKind.PARAM, name) for name in params),
        *(RunField(FieldKind.METRIC, name) for name in metrics),
    ]


def _value(run: RunFacts, field: RunField) -> Value:
    if field.kind is FieldKind.METRIC:
        return run.metrics.get(field.key)
    return run.params.get(field.key)


def _differs(field: RunField, runs: Sequence[RunFacts]) -> bool:
    # NaN is unlike itself as a number, and no difference between two runs that both have it.
    values = {
        "NaN" if isinstance(value, float) and math.isnan(value) else value
        for value in (_value(run, field) for run in runs)
    }
    return len(values) > 1


def finite_number(value: Value) -> float | None:
    """Return a logged value as a finite number, or None if it is none or was not logged.

    Parameters are text: those that a person would read as a number count as one.
    """
    if isinstance(value, str):
        if "_" in value:
            return None
        try:
            value = float(value)
        except ValueError:
            return None
    return value if value is not None and math.isfinite(value) else None


def _cells(field: RunField, runs: Sequence[RunFacts]) -> list[ValueCell]:
    base = _value(runs[0], field)
    return [_cell(_value(run, field), base, at == 0) for at, run in enumerate(runs)]


def _cell(value: Value, base: Value, is_base: bool) -> ValueCell:
    if value is None:
        return ValueCell("", differs=base is not None and not is_base)
    text = value if isinstance(value, str) else number(value)
    title = text if len(text) > LONGEST_TEXT else ""
    if title:
        text = f"{text[: LONGEST_TEXT - 1]}…"
    if is_base:
        return ValueCell(text, title)
    both_nan = _is_nan(value) and _is_nan(base)
    return ValueCell(
        text, title, value != base and not both_nan, *_difference(finite_number(value), base)
    )


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _difference(value: float | None, base_value: Value) -> tuple[str, str]:
    """Return the difference from the baseline and its percentage, empty where there is none."""
    base = finite_number(base_value)
    if value is None or base is None or value == base:
        return "", ""
    difference = value - base
    if not math.isfinite(difference):
        return "", ""
    percent = difference / abs(base) * 100 if base else math.inf
    return _signed(difference, number(abs(difference))), (
        f"{_signed(percent, _percent_text(abs(percent)))} %" if math.isfinite(percent) else ""
    )


def _percent_text(percent: float) -> str:
    if percent >= _MOST_EXACT_PERCENT:
        return f"{percent:.2g}"
    return f"{percent:,.0f}" if percent >= 100 else f"{percent:.3g}"


def _signed(value: float, text: str) -> str:
    return f"{_MINUS if value < 0 else '+'}{text}"


def _sort_of(text: str, fields: Sequence[RunField]) -> tuple[RunField | None, str]:
    """Return the value that the runs are sorted by, and a sentence if there is no such value."""
    if not text:
        return None, ""
    with suppress(InvalidInput):
        field = parse_field(text.removeprefix("-"), name=SORT)
        if field in fields:
            return field, ""
    return None, "The runs have no value to sort by as the address asks. Click the name of one."


def _sorted(runs: Sequence[RunFacts], field: RunField | None, requested: str) -> Sequence[RunFacts]:
    """Sort numbers before text; runs without a value, and those with NaN, come last."""
    if field is None:
        return runs
    numbers: list[tuple[float, RunFacts]] = []
    texts: list[tuple[str, RunFacts]] = []
    others: list[RunFacts] = []
    for run in runs:
        value = _value(run, field)
        as_number = finite_number(value)
        if as_number is None and isinstance(value, float) and math.isinf(value):
            as_number = value
        if as_number is not None:
            numbers.append((as_number, run))
        elif isinstance(value, str):
            texts.append((value, run))
        else:
            others.append(run)
    down = requested.startswith("-")
    numbers.sort(key=lambda it: it[0], reverse=down)
    texts.sort(key=lambda it: it[0], reverse=down)
    return [*(run for _, run in numbers), *(run for _, run in texts), *others]


def _next_sort(field: RunField, requested: str) -> str:
    return {str(field): f"-{field}", f"-{field}": ""}.get(requested, str(field))


def _aria_sort(field: RunField, requested: str) -> str:
    return {str(field): "ascending", f"-{field}": "descending"}.get(requested, "")


def _start_of(text: str, rows: int) -> int:
    start = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0
    return start if start < rows else 0
