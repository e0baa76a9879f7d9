"""`slipway pipeline`: run pipelines, and see what they do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from slipway.cli.exits import ExitCode, UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.quantities import parse_pairs
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.train import (
    DEFAULT_MAX_MB,
    CodeOption,
    IncludeOption,
    MaxMbOption,
    create_snapshot,
    upload,
)
from slipway.pipeline_files import read_pipeline
from slipway.pipeline_graphs import FORMATS, draw
from slipway.pipeline_runs import parse_parameters, run_body
from slipway.schemas.money import dollars
from slipway.schemas.pipelines import (
    PipelinePlan,
    PipelineRunIn,
    PipelineRunOut,
    PipelineRunState,
    PlannedStep,
    StepRunOut,
)

app = typer.Typer(
    no_args_is_help=True,
    help="Pipelines: steps with dependencies. Run one: slipway pipeline run FILE.",
)
SourceArgument = Annotated[
    str,
    typer.Argument(metavar="FILE", help="YAML or Python file, or FILE.py::NAME of several."),
]
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")]
StepArgument = Annotated[str, typer.Argument(metavar="STEP", help="Name of the step.")]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="Value of a parameter. Repeatable."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Reuse nothing of earlier runs.")]
NoteOption = Annotated[str, typer.Option("--note", help="Reason, for others to read.")]
WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help="Show steps until the run ends, and its outcome.")
]
_EXITS = {
    PipelineRunState.SUCCEEDED: ExitCode.OK,
    PipelineRunState.FAILED: ExitCode.JOB_FAILED,
    PipelineRunState.CANCELLED: ExitCode.JOB_STOPPED,
}


@command(app, "run")
def run(
    session: Session,
    source: SourceArgument,
    param: ParameterOption = None,
    force: ForceOption = False,
    code: CodeOption = ".",
    include: IncludeOption = None,
    max_mb: MaxMbOption = DEFAULT_MAX_MB,
    project: ProjectOption = None,
    watch_it: WatchOption = False,
) -> None:
    """Run a pipeline. Steps that an earlier run has done already are reused."""
    slug = session.project(project)
    with _prepared(session, source, param, force, code, include, max_mb, slug) as body:
        made = session.client.pipelines.start(body, project=slug)
    _finish(session, made, watch_it=watch_it)


@command(app, "plan")
def plan(
    session: Session,
    source: SourceArgument,
    param: ParameterOption = None,
    force: ForceOption = False,
    code: CodeOption = ".",
    include: IncludeOption = None,
    max_mb: MaxMbOption = DEFAULT_MAX_MB,
    project: ProjectOption = None,
) -> None:
    """Show what a run would reuse, and what the rest would cost. Nothing is started."""
    slug = session.project(project)
    with _prepared(session, source, param, force, code, include, max_mb, slug) as body:
        planned = session.client.pipelines.plan(body, project=slug)
    if session.output.as_json:
        session.output.document(planned)
        return
    session.output.table(
        [
            ListColumn("Step", style="bold"),
            ListColumn("Action"),
            ListColumn("Price"),
            ListColumn("Why", fit=CellOverflow.WRAPPED),
        ],
        [_planned_row(step) for step in planned.steps],
    )
    session.output.note(_total(planned))


@command(app, "graph")
def graph(
    session: Session,
    source: SourceArgument,
    form: Annotated[
        str, typer.Option("--format", metavar=f"[{'|'.join(FORMATS)}]", help="Form of the graph.")
    ] = "text",
    code: CodeOption = ".",
) -> None:
    """Check a pipeline and show its steps in the order in which they can run."""
    if form not in FORMATS:
        raise UsageMistake(
            f"{form} is no format of graphs.",
            field="format",
            next_step=f"Use {', '.join(FORMATS)}.",
        )
    pipeline = read_pipeline(source, folder=code)
    if session.output.as_json:
        session.output.document(pipeline)
        return
    for line in draw(pipeline, form).splitlines():
        session.output.line(line)


@command(app, "list")
def list_runs(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the runs of pipelines of a project, newest first."""
    pages = session.client.pipelines.list(project=session.project(project), search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id"),
            ListColumn("Name", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("State"),
            ListColumn("Steps", fit=CellOverflow.WRAPPED),
            ListColumn("Cost", dispensable=1),
            ListColumn("Created", dispensable=2),
        ],
        row=lambda item: (
            item.id,
            item.name,
            item.state,
            _counts(item),
            dollars(item.cost_nano_usd),
            item.created_at,
        ),
        key=lambda item: item.id,
        nothing="No pipeline has run yet. Run one: slipway pipeline run FILE",
    )


@command(app, "show")
def show_run(session: Session, run_id: RunArgument, project: ProjectOption = None) -> None:
    """Show one run and its steps."""
    show(session, session.client.pipelines.get(run_id, project=session.project(project)))


@command(app, "resume")
def resume(
    session: Session,
    run_id: RunArgument,
    project: ProjectOption = None,
    watch_it: WatchOption = False,
) -> None:
    """Resume a failed or cancelled run. Steps that have succeeded are not done again."""
    slug = session.project(project)
    resumed = session.client.pipelines.resume(run_id, project=slug)
    _finish(session, resumed, watch_it=watch_it)


@command(app, "approve")
def approve(
    session: Session,
    run_id: RunArgument,
    step: StepArgument,
    note: NoteOption = "",
    project: ProjectOption = None,
) -> None:
    """Approve a step that waits for it."""
    slug = session.project(project)
    show(session, session.client.pipelines.approve(run_id, step, project=slug, note=note))


@command(app, "decline")
def decline(
    session: Session,
    run_id: RunArgument,
    step: StepArgument,
    note: NoteOption = "",
    project: ProjectOption = None,
) -> None:
    """Decline a step that waits for approval. It fails."""
    slug = session.project(project)
    show(session, session.client.pipelines.decline(run_id, step, project=slug, note=note))


@command(app, "cancel")
def cancel(
    session: Session, run_id: RunArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """End a run and its jobs."""
    slug = session.project(project)
    confirm(f"Cancel the run {run_id} and its jobs?", yes=yes, output=session.output)
    show(session, session.client.pipelines.cancel(run_id, project=slug))


def show(session: Session, item: PipelineRunOut) -> None:
    """Write one run."""
    if session.output.as_json:
        session.output.document(item)
        return
    if session.output.quiet:
        session.output.line(item.id)
        return
    session.output.facts(
        {
            "Id": item.id,
            "Name": item.name,
            "State": item.state,
            "Why": item.explanation,
            "Next step": item.next_step,
            "Parameters": [f"{name}={value}" for name, value in item.parameters.items()],
            "Steps": [_step_text(step) for step in item.steps],
            "Attempt": item.attempt,
            "Cost": dollars(item.cost_nano_usd),
            "Paid by": item.owner,
            "Created": item.created_at,
            "Ended": item.ended_at,
        }
    )


@contextmanager
def _prepared(
    session: Session,
    source: str,
    param: list[str] | None,
    force: bool,
    code: str,
    include: list[str] | None,
    max_mb: int,
    slug: str,
) -> Iterator[PipelineRunIn]:
    """Read the pipeline, upload the code, and yield the request."""
    pipeline = read_pipeline(source, folder=code)
    parameters = parse_parameters(pipeline, parse_pairs(param or (), option="--param"))
    with create_snapshot(session, code, None, include, max_mb) as snapshot:
        body = run_body(pipeline, parameters, snapshot, force=force)
        upload(session, snapshot, slug)
        yield body


def _finish(session: Session, item: PipelineRunOut, *, watch_it: bool) -> None:
    """Print a run that goes on, or show it until it ends and exit with its outcome."""
    if not watch_it:
        show(session, item)
        return
    seen: dict[tuple[str, int | None], str] = {}

    def report(current: PipelineRunOut) -> None:
        for step in current.steps:
            if seen.get((step.step, step.item)) != step.state:
                seen[(step.step, step.item)] = step.state
                session.output.note(_step_text(step))

    ended = session.client.pipelines.wait(item.id, project=item.project, on_change=report)
    show(session, ended)
    raise typer.Exit(_EXITS[ended.state])


def _step_text(step: StepRunOut) -> str:
    name = step.step if step.item is None else f"{step.step} {step.item + 1}"
    notes = "; ".join(note for note in (step.sweep or step.job or "", step.explanation) if note)
    return f"{name}: {step.state} ({notes})" if notes else f"{name}: {step.state}"


def _counts(item: PipelineRunOut) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(item.counts.items()))


def _planned_row(step: PlannedStep) -> tuple[str, ...]:
    items = f", {step.items} items" if step.items else ""
    trials = f", {step.sweep_quote.trials} trials" if step.sweep_quote else ""
    quote = step.sweep_quote or step.quote
    price = f"{dollars(quote.nano_usd_per_hour)} an hour{trials}{items}" if quote else ""
    return (step.step, step.action, price, step.explanation)


def _total(planned: PipelinePlan) -> str:
    total = (
        "no history yet"
        if planned.expected_nano_usd is None
        else f"about {dollars(planned.expected_nano_usd)}"
    )
    return f"{planned.reused} reused, {planned.to_run} to run: {total}."
