"""Presenters of runs: the view that a URL requests, columns, cells, labels."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, QueryDict

from portal.core.errors import InvalidInput
from portal.experiments.factories import tracker
from portal.experiments.filters import FieldKind, RunField, parse_field
from portal.experiments.ports import RunFacts, RunGroup, RunPage, RunSearch, Stage
from portal.experiments.services.queries import search_of
from portal.registry.logged_models import models_of_runs

PAGE_RUNS = 50
MOST_GROUPS = 100
_OWN_METRICS, _OWN_PARAMS = 5, 4
_SAMPLED = 5
_TONES = {"RUNNING": "strong", "FINISHED": "ok", "FAILED": "bad", "KILLED": "", "SCHEDULED": "warn"}
_WORDS = {"KILLED": "stopped"}
MODEL_COLUMN = "model"
# Columns about a run that are offered beside those that it logged.
DETAIL_COLUMNS = {
    "attributes.user_id": "Person",
    "tags.`mlflow.source.name`": "Source",
    "tags.`mlflow.source.git.commit`": "Commit",
    MODEL_COLUMN: "Model",
}
_LABELS = DETAIL_COLUMNS | {"attributes.run_id": "Run id"}
_OPERATORS = re.compile(r"[=<>!]|\b(?:like|ilike|in|is)\b", re.IGNORECASE)
_MOST_WORDS = 200
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
    """One run in a list. `cells` are (text, whether it is a number) in the order of headings.

    `models` are the names of logged models, and of registered ones with their version.
    """

    run: RunFacts
    label: str
    tone: str
    started_at: datetime | None
    lasted_s: float | None
    cells: Sequence[tuple[str, bool]]
    models: Sequence[tuple[str, int | None]] = ()

    @property
    def is_active(self) -> bool:
        """True if the run is running."""
        return self.run.status == "RUNNING"


@dataclass
class View:
    """A list of runs as its address asks for it. `fault` says what cannot be understood, where."""

    words: str
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
    with_models: bool = False

    @property
    def narrowed(self) -> bool:
        """True if a filter or words are set."""
        return bool(self.filter_text or self.words)

    @property
    def any_running(self) -> bool:
        """True if any run on the page is running."""
        return any(row.is_active for row in self.rows)


def view_of(request: HttpRequest, project_id: str, experiments: Sequence[int]) -> View:
    """Return the runs that a URL requests. Input errors are in the view's fault."""
    get = request.GET
    words, filter_text = get.get("q", "").strip(), get.get("filter", "").strip()
    if _is_words(filter_text):
        # Somebody who types a word means to search for it.
        words, filter_text = f"{words} {filter_text}".strip(), ""
    view = View(
        words=words,
        filter_text=filter_text,
        order=get.get("order", ""),
        group=get.get("group", "").strip(),
        stage=Stage.DELETED if get.get("stage") == "deleted" else Stage.ACTIVE,
        chosen=[text for text in get.getlist("c") if text.strip() and text != MODEL_COLUMN],
        with_models=MODEL_COLUMN in get.getlist("c"),
        first=not get.get("cursor"),
    )
    try:
        _fill(view, project_id, experiments, get)
    except InvalidInput as error:
        view.fault = " ".join(filter(None, (error.message, error.next_step)))
        view.faulty = error.field or ""
    return view


def _is_words(text: str) -> bool:
    """Return whether a filter compares nothing, so that it is words to search for."""
    return 0 < len(text) <= _MOST_WORDS and _OPERATORS.search(text) is None


def _fill(view: View, project_id: str, experiments: Sequence[int], requested: QueryDict) -> None:
    run_search = search_of(
        project_id=project_id,
        experiments=experiments,
        words=view.words,
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
    if not view.chosen and not view.with_models and page.items:
        page = _with_own_columns(view, run_search, page)
    view.next_cursor = page.next_cursor
    view.headings = [_heading(column, view.order, requested) for column in view.columns]
    models = models_of_runs(project_id, [it.id for it in page.items]) if view.with_models else {}
    view.rows = [row_of(run, view.columns, models.get(run.id, ())) for run in page.items]


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
    label = _LABELS.get(text, column.key)
    return Heading(label, column.kind.value.removesuffix("s"), f"?{query.urlencode()}", now)


def row_of(
    run: RunFacts, columns: Sequence[RunField], models: Sequence[tuple[str, int | None]] = ()
) -> RunRow:
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
        models=models,
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


def signature_text(signature: dict[str, Any] | None) -> str:
    """Write the signature of a model in a line: its inputs, an arrow, its outputs."""
    if signature is None:
        return ""
    sides = (", ".join(_column(it) for it in signature[side]) for side in ("inputs", "outputs"))
    return " → ".join(side or "?" for side in sides)


def _column(column: dict[str, Any]) -> str:
    kind = f"{column['type']}{column['shape'] or ''}"
    return f"{column['name']}: {kind}" if column["name"] else kind


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
    words = [("q", view.words)] if view.words else []
    return urlencode([*words, ("filter", joined), *(("c", text) for text in view.chosen)])
