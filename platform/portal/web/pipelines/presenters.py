"""Presenters of runs of pipelines: state, rows of the list, steps with outputs and cost."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from django.urls import reverse

from portal.accounts.models import User
from portal.core import clock
from portal.pipelines.models import PipelineRun, StepRun
from portal.pipelines.pipeline_summaries import (
    PipelineSummary,
    costs_of_steps,
    reasons_of_sweeps,
)
from portal.web.base.dates import lasting
from portal.web.jobs.presenters import job_statuses, jobs_of
from slipway.schemas.pipeline_checks import dependencies, ordered
from slipway.schemas.pipeline_references import as_text
from slipway.schemas.pipelines import PipelineRunState, StepIn, StepState
from slipway.schemas.truncation import join_names, shorten

# Items of fan-outs that a page shows. The command line and the API have all of them.
MOST_ITEMS = 300
_MOST_NAMES = 3
_MOST_CHARACTERS = 120
_MOST_EXACT = 2000
# Outputs that are ids, and the pages of what they name.
_PAGES_OF_IDS = {
    ("notebook", "run"): "project_run",
    ("sweep", "best_job"): "project_job",
    ("sweep", "best_run"): "project_run",
}
_FILE = re.compile(r"runs:/([0-9a-f]{32})/(?:files/)?(.+)")
_VERSION = re.compile(r"models:/([^/]+)/([1-9][0-9]{0,8})")
_STATES: dict[str, tuple[str, str]] = {
    PipelineRunState.RUNNING: ("running", "strong"),
    StepState.APPROVAL: ("waits for approval", "warn"),
    StepState.SUCCEEDED: ("succeeded", "ok"),
    StepState.REUSED: ("reused", "ok"),
    StepState.FAILED: ("failed", "bad"),
}


@dataclass(frozen=True)
class PipelineStatus:
    """Status of a run or of a step, as the part that shows states reads it."""

    label: str
    tone: str
    is_active: bool

    @classmethod
    def of(cls, state: str) -> "PipelineStatus":
        """Return the status of a state of a run or of a step."""
        label, tone = _STATES.get(state, (str(state), ""))
        return cls(label, tone, state == StepState.RUNNING)


@dataclass(frozen=True)
class Duration:
    """A duration. `counts_from` is None once it has ended."""

    text: str
    counts_from: datetime | None

    @classmethod
    def between(cls, start: datetime | None, end: datetime | None) -> "Duration | None":
        """Return the time from `start` to `end`, or until now. None if it has not started."""
        if start is None:
            return None
        seconds = ((end or clock.now()) - start).total_seconds()
        return cls(lasting(seconds), start if end is None else None)


@dataclass(frozen=True)
class PipelineRunRow:
    """A run in the list. `ended` of its `total` steps have ended, `reused` of them by reuse."""

    run: PipelineRun
    status: PipelineStatus
    ended: int
    total: int
    reused: int
    cost: int
    lasted: Duration | None

    @classmethod
    def of(cls, run: PipelineRun, summary: PipelineSummary) -> "PipelineRunRow":
        """Return the row of a run."""
        counts = summary.counts
        return cls(
            run=run,
            status=PipelineStatus.of(run.state),
            ended=sum(number for state, number in counts.items() if StepState(state).has_ended),
            total=sum(counts.values()),
            reused=counts.get(StepState.REUSED, 0),
            cost=summary.cost_nano_usd,
            lasted=Duration.between(run.created_at, run.ended_at),
        )


@dataclass(frozen=True)
class OutputValue:
    """An output of a step. `url` is the page of the run or model version that it names, or ""."""

    name: str
    text: str
    exact: str
    url: str


@dataclass(frozen=True)
class StepView:
    """A step of a run, or an item of a fan-out, as the page shows it.

    `after` are the steps that it waits for, `value` is that of an item. `items` are the first of
    its `item_count` items, of which `items_ended` have ended. `approvers` is the role that decides
    about an approval. `noun` is the kind of a step that is no job, else "".
    """

    row: StepRun
    status: PipelineStatus
    reason: str
    next_step: str
    after: Sequence[str]
    outputs: Sequence[OutputValue]
    cost: int
    lasted: Duration | None
    approvers: str
    noun: str
    value: str = ""
    items: Sequence["StepView"] = ()
    item_count: int = 0
    items_ended: int = 0

    @property
    def name(self) -> str:
        """The name of the step."""
        return self.row.step

    @property
    def waits_for_approval(self) -> bool:
        """True if a person has to decide about it."""
        return self.row.status == StepState.APPROVAL

    @property
    def items_left_out(self) -> int:
        """Number of items that are not shown."""
        return self.item_count - len(self.items)


@dataclass(frozen=True)
class _Reader:
    """All that the views of the steps of a run need, read with a fixed number of queries."""

    slug: str
    rows: Mapping[str, StepRun]
    costs: Mapping[str, int]
    reasons: Mapping[str, str]

    def view(self, row: StepRun, step: StepIn) -> StepView:
        """Return the view of a row, without its items."""
        after = list(dependencies(step))
        return StepView(
            row=row,
            status=PipelineStatus.of(row.state),
            reason=self._reason(row, after),
            next_step=row.next_step,
            after=after,
            outputs=[_output(self.slug, step, name, value) for name, value in row.outputs.items()],
            cost=self.costs.get(row.pk, 0),
            lasted=Duration.between(row.started_at, row.ended_at),
            approvers=step.approvers,
            noun="" if step.is_job and not step.is_notebook else step.kind,
            value="" if row.item is None else shorten(as_text(row.value), _MOST_CHARACTERS),
        )

    def fan_out(self, row: StepRun, step: StepIn, items: Sequence[StepRun], most: int) -> StepView:
        """Return the view of a fan-out with the first of its items. Its cost is theirs."""
        return replace(
            self.view(row, step),
            cost=sum(self.costs.get(item.pk, 0) for item in items),
            items=[self.view(item, step) for item in items[:most]],
            item_count=len(items),
            items_ended=sum(item.status.has_ended for item in items),
        )

    def _reason(self, row: StepRun, after: Sequence[str]) -> str:
        if row.explanation:
            return row.explanation
        if row.status == StepState.RUNNING:
            return self.reasons.get(row.sweep_id or row.job_id or "", "")
        if row.status == StepState.WAITING and row.item is None:
            open_names = [name for name in after if not self.rows[name].status.has_ended]
            return f"Waits for {join_names(open_names, _MOST_NAMES)}." if open_names else ""
        return ""


def steps_of(run: PipelineRun, viewer: User) -> list[StepView]:
    """Return the steps in an order in which they can run, with a fixed number of queries."""
    queryset = StepRun.objects.filter(run=run).select_related("reused_from", "decided_by")
    queryset = queryset.defer("request", "reused_from__request", "reused_from__outputs")
    everything = list(queryset.order_by("step", "item"))
    rows = {row.step: row for row in everything if row.item is None}
    running = [row.job_id for row in everything if row.status == StepState.RUNNING and row.job_id]
    jobs = job_statuses(list(jobs_of(run.project).filter(pk__in=running)), viewer)
    reasons = {it.job.pk: it.reason for it in jobs} | reasons_of_sweeps(everything)
    reader = _Reader(run.project.slug, rows, costs_of_steps(everything), reasons)
    views, most = [], MOST_ITEMS
    for step in ordered(run.pipeline):
        items = [row for row in everything if row.step == step.name and row.item is not None]
        row = rows[step.name]
        views.append(reader.fan_out(row, step, items, most) if items else reader.view(row, step))
        most -= len(views[-1].items)
    return views


def edges_of(steps: Sequence[StepView]) -> list[tuple[str, str]]:
    """Return the pairs of steps of which the second waits for the first."""
    return [(name, view.name) for view in steps for name in view.after]


def progress_text(run: PipelineRun, steps: Sequence[StepView]) -> str:
    """Return why a run is in its state, or how far it is."""
    if run.explanation or run.state != PipelineRunState.RUNNING:
        return run.explanation
    pending = [view.name for view in steps if view.waits_for_approval]
    active = [view.name for view in steps if view.row.status == StepState.RUNNING]
    parts = []
    if pending:
        verb = "waits" if len(pending) == 1 else "wait"
        parts.append(f"{join_names(pending, _MOST_NAMES)} {verb} for approval.")
    if active:
        verb = "runs" if len(active) == 1 else "run"
        parts.append(f"{join_names(active, _MOST_NAMES)} {verb}.")
    return " ".join(parts) or "Its next steps start within seconds."


def version_of(value: object) -> tuple[str, int] | None:
    """Return the model and number that an output such as `models:/digits/3` names, or None."""
    match = _VERSION.fullmatch(value) if isinstance(value, str) else None
    return None if match is None else (match[1], int(match[2]))


def _output(slug: str, step: StepIn, name: str, value: object) -> OutputValue:
    exact = as_text(value)
    text, url = exact, ""
    page = _PAGES_OF_IDS.get((step.kind, name))
    if page is not None and isinstance(value, str):
        url = reverse(page, args=[slug, value])
    elif isinstance(value, list) and value and all(_FILE.fullmatch(as_text(it)) for it in value):
        text = f"{len(value)} files, one of each item"
    elif match := _FILE.fullmatch(exact):
        text, url = match[2], reverse("project_run", args=[slug, match[1]])
    elif version := version_of(value):
        url = reverse("project_model_version", args=[slug, *version])
    short = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"
    return OutputValue(name, short, shorten(exact, _MOST_EXACT), url)
