"""Presenters of runs: the view that a URL requests, columns, cells, labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.http import HttpRequest, QueryDict

from portal.core.errors import InvalidInput
from portal.experiments.factories import tracker
from portal.experiments.filters import FieldKind, RunField, parse_field
from portal.experiments.ports import RunFacts, RunGroup, RunPage, RunSearch, Stage
from portal.experiments.services.queries import search_of

PAGE_RUNS = 50
MOST_GROUPS = 100
_OWN_METRICS, _OWN_PARAMS = 5, 4
_SAMPLED = 5
_TONES = {"RUNNING": "strong", "FINISHED": "ok", "FAILED": "bad", "KILLED": "", "SCHEDULED": "warn"}
_WORDS = {"KILLED": "stopped"}
_LAST_MS = 253_402_300_799_000


@dataclass(frozen=True)
class Heading:
    """The head of a column: its name, the address that sorts by it, how it is sorted now."""

    label: str
    kind: str
    url: str
    aria: str


@dataclass(frozen=True)
class RunRow:
    """One run in a list. `cells` are (text, whether it is a number) in the order of headings."""

    run: RunFacts
    label: str
    tone: str
    started_at: datetime | None
    lasted_s: float | None
    cells: Sequence[tuple[str, bool]]

    @property
    def is_active(self) -> bool:
        """True if the run is running."""
        return self.run.status == "RUNNING"


@dataclass
class View:
    """A list of runs as its address asks for it. `fault` says what cannot be understood, where."""

    filter_text: str
    order: str
    group: str
    stage: Stage
    chosen: list[str]
    fault: str = ""
    faulty: str = ""
    columns: list[RunField] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    rows: list[RunRow] = field(default_factory=list)
    groups: Sequence[RunGroup] = ()
    next_cursor: str | None = None
    first: bool = True

    @property
    def narrowed(self) -> bool:
        """True if a filter is set."""
        return bool(self.filter_text)

    @property
    def any_running(self) -> bool:
        """True if any run on the page is running."""
        return any(row.is_active for row in self.rows)


def view_of(request: HttpRequest, project_id: str, experiments: Sequence[int]) -> View:
    """Return the runs that a URL requests. Input errors are in the view's fault."""
    get = request.GET
    view = View(
        filter_text=get.get("filter", "").strip(),
        order=get.get("order", ""),
        group=get.get("group", "").strip(),
        stage=Stage.DELETED if get.get("stage") == "deleted" else Stage.ACTIVE,
        chosen=[text for text in get.getlist("c") if text.strip()],
        first=not get.get("cursor"),
    )
    try:
        _fill(view, project_id, experiments, get)
    except InvalidInput as error:
        view.fault = " ".join(filter(None, (error.message, error.next_step)))
        view.faulty = error.field or ""
    return view


def _fill(view: View, project_id: str, experiments: Sequence[int], requested: QueryDict) -> None:
    run_search = search_of(
        project_id=project_id,
        experiments=experiments,
        filter_text=view.filter_text,
        order=view.order,
        columns=view.chosen,
        stage=view.stage,
        limit=MOST_GROUPS if view.group else PAGE_RUNS,
        cursor=requested.get("cursor") or None,
    )
    view.columns = list(run_search.columns or ())
    if view.group:
        view.groups = tracker().groups(run_search, parse_field(view.group, name="group"))
        return
    page = tracker().search(run_search)
    if not view.chosen and page.items:
        page = _with_own_columns(view, run_search, page)
    view.next_cursor = page.next_cursor
    view.headings = [_heading(column, view.order, requested) for column in view.columns]
    view.rows = [row_of(run, view.columns) for run in page.items]


def _with_own_columns(view: View, run_search: RunSearch, page: RunPage) -> RunPage:
    """Show what the first runs have logged, where nobody has chosen columns."""
    if run_search.stage is Stage.DELETED:
        return page
    ids = [run.id for run in page.items]
    sample = tracker().runs(run_search.project_id, ids[:_SAMPLED])
    metrics = dict.fromkeys(key for run in sample for key in run.metrics)
    params = dict.fromkeys(key for run in sample for key in run.params)
    view.columns = [
        *(RunField(FieldKind.METRIC, key) for key in list(metrics)[:_OWN_METRICS]),
        *(RunField(FieldKind.PARAM, key) for key in list(params)[:_OWN_PARAMS]),
    ]
    return RunPage(tracker().with_columns(page.items, view.columns), page.next_cursor)


def _heading(column: RunField, order: str, requested: QueryDict) -> Heading:
    text = str(column)
    now = {text: "ascending", f"-{text}": "descending"}.get(order, "")
    query = requested.copy()
    query.pop("cursor", None)
    query["order"] = text if now == "descending" else f"-{text}"
    return Heading(column.key, column.kind.value.removesuffix("s"), f"?{query.urlencode()}", now)


def row_of(run: RunFacts, columns: Sequence[RunField]) -> RunRow:
    """Return a run as a line of a list."""
    lasted = None
    if run.started_ms is not None and run.ended_ms is not None:
        lasted = max(0, run.ended_ms - run.started_ms) / 1000
    return RunRow(
        run=run,
        label=status_label(run.status),
        tone=_TONES.get(run.status, ""),
        started_at=datetime_from_ms(run.started_ms),
        lasted_s=lasted,
        cells=[_cell(run, column) for column in columns],
    )


def status_label(status: str) -> str:
    """Return the word for the status of a run."""
    return _WORDS.get(status, status.lower())


def _cell(run: RunFacts, column: RunField) -> tuple[str, bool]:
    if column.kind is FieldKind.METRIC:
        value = run.metrics.get(column.key)
        return ("" if value is None else number(value)), True
    if column.kind is FieldKind.ATTRIBUTE:
        return str({"run_id": run.id, "user_id": run.user}.get(column.key, "")), False
    return (run.params if column.kind is FieldKind.PARAM else run.tags).get(column.key, ""), False


def number(value: float) -> str:
    """Write a value of a metric: six digits that count, and the words for what is no number."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return f"{value:.6g}"


def datetime_from_ms(milliseconds: int | None) -> datetime | None:
    """Return a datetime from milliseconds since 1970."""
    if milliseconds is None or not 0 <= milliseconds <= _LAST_MS:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def group_query(view: View, group: RunGroup) -> str:
    """Return the query of the runs of one group."""
    by = parse_field(view.group, name="group")
    if group.value is None:
        term = f"{by} is null"
    else:
        quoted = group.value.replace("'", "''")
        term = f"{by} = {group.value}" if by.is_number else f"{by} = '{quoted}'"
    joined = " and ".join(filter(None, (view.filter_text, term)))
    return urlencode([("filter", joined), *(("c", text) for text in view.chosen)])
