"""`slipway schedule`: start jobs, sweeps and pipelines at times or for events."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Annotated, Any

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.quantities import parse_pairs
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.train import DEFAULT_MAX_MB, CodeOption, create_snapshot, upload
from slipway.pipeline_files import read_pipeline
from slipway.pipeline_runs import run_body, typed_values
from slipway.schemas.pipelines import PipelineRunIn
from slipway.schemas.schedules import ScheduledRunOut, ScheduleOut, SchedulePreview
from slipway.schemas.triggers import trigger_text

app = typer.Typer(
    no_args_is_help=True,
    help="Schedules: start a job, sweep or pipeline by a cron expression or for events.",
)
ScheduleArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="Name of the schedule.")]
CronOption = Annotated[
    str | None,
    typer.Option(
        "--cron",
        metavar="CRON",
        help="Minute, hour, day of the month, month, day of the week: '0 2 * * MON-FRI'.",
    ),
]
EventOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="EVENT",
        help="Event instead of times: dataset:NAME, model:NAME (new versions), stage:MODEL, "
        "stage:MODEL/STAGE, stage:MODEL@ALIAS, drift:ENDPOINT, labels:ENDPOINT:NUMBER, webhook.",
    ),
]
ZoneOption = Annotated[
    str | None,
    typer.Option(
        "--zone", metavar="ZONE", help="Time zone, such as Europe/Berlin. UTC if left out."
    ),
]
JobOption = Annotated[
    str | None, typer.Option("--job", metavar="JOB", help="Id of the job to repeat.")
]
SweepOption = Annotated[
    str | None, typer.Option("--sweep", metavar="SWEEP", help="Id of the sweep to repeat.")
]
PipelineOption = Annotated[
    str | None,
    typer.Option("--pipeline", metavar="FILE", help="YAML or Python file of a pipeline to start."),
]
PipelineRunOption = Annotated[
    str | None,
    typer.Option("--pipeline-run", metavar="RUN", help="Id of the run of a pipeline to repeat."),
]
ParameterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param", metavar="NAME=VALUE", help="Value of a parameter of the pipeline. Repeatable."
    ),
]
MissedOption = Annotated[
    str | None,
    typer.Option(
        "--missed", help="Runs missed while Slipway was down: skip, once (one for all) or all."
    ),
]
OverlapOption = Annotated[
    str | None,
    typer.Option(
        "--overlap", help="While the run before goes on: skip, queue, or cancel the old one."
    ),
]
RunAsOption = Annotated[
    str | None,
    typer.Option(
        "--as",
        metavar="ACCOUNT",
        help="Service account that runs and pays for everything, or me. You, if left out.",
    ),
]


def show(session: Session, schedule: ScheduleOut) -> None:
    """Write one schedule."""
    if session.output.as_json:
        session.output.document(schedule)
    elif session.output.quiet:
        session.output.line(schedule.name)
    else:
        session.output.facts(
            {
                "Name": schedule.name,
                "State": schedule.state,
                "Why": schedule.explanation,
                "Next step": schedule.next_step,
                "Cron": schedule.cron,
                "Starts for": trigger_text(schedule.trigger) if schedule.trigger else None,
                "URL created": schedule.hook_created_at,
                "Time zone": schedule.zone if schedule.cron else None,
                "Next times": [_local(at) for at in schedule.next_times],
                "Repeats": _template_text(schedule),
                "Parameters": [f"{key}={value}" for key, value in schedule.parameters.items()],
                "Script": schedule.script,
                "Tier": schedule.tier,
                "Missed runs": schedule.missed,
                "Overlaps": schedule.overlap,
                "Paid by": schedule.owner,
                "Last run": _last_text(schedule.last_run),
                "Created": schedule.created_at,
            }
        )


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name, such as nightly.")],
    cron: CronOption = None,
    on: EventOption = None,
    zone: ZoneOption = None,
    job: JobOption = None,
    sweep: SweepOption = None,
    pipeline: PipelineOption = None,
    pipeline_run: PipelineRunOption = None,
    param: ParameterOption = None,
    code: CodeOption = ".",
    missed: MissedOption = None,
    overlap: OverlapOption = None,
    run_as: RunAsOption = None,
    project: ProjectOption = None,
) -> None:
    """Create a schedule of a job, a sweep or a pipeline."""
    if (cron is None) == (on is None):
        raise UsageMistake(
            "A schedule starts at times or for events.",
            field="cron",
            next_step="Add --cron '0 2 * * *' or --on EVENT, one of them.",
        )
    if sum(value is not None for value in (job, sweep, pipeline, pipeline_run)) != 1:
        raise UsageMistake(
            "A schedule starts a job, a sweep or a pipeline.",
            field="job",
            next_step="Add one of --job JOB, --sweep SWEEP, --pipeline FILE, --pipeline-run RUN.",
        )
    slug = session.project(project)
    with _pipeline_of(session, pipeline, pipeline_run, param, code, slug) as (start, parameters):
        made = session.client.schedules.create(
            name,
            cron,
            trigger=_trigger(on),
            zone=zone,
            job=job,
            sweep=sweep,
            pipeline=start,
            pipeline_run=pipeline_run,
            parameters=parameters,
            missed=missed,
            overlap=overlap,
            run_as=run_as,
            project=slug,
        )
    show(session, made)


@command(app, "preview")
def preview(
    session: Session,
    cron: Annotated[str, typer.Argument(metavar="CRON", help="The cron expression.")],
    zone: ZoneOption = None,
    count: Annotated[int | None, typer.Option("--count", min=1, help="Number of times.")] = None,
    project: ProjectOption = None,
) -> None:
    """Show the next times of a cron expression. Nothing is created."""
    slug = session.project(project)
    times: SchedulePreview = session.client.schedules.preview(
        cron, zone=zone, count=count, project=slug
    )
    if session.output.as_json:
        session.output.document(times)
        return
    for at in times.times:
        session.output.line(_local(at))


@command(app, "list")
def list_schedules(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the schedules of a project, newest first."""
    pages = session.client.schedules.list(project=session.project(project), search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("State"),
            ListColumn("Starts", fit=CellOverflow.WRAPPED),
            ListColumn("Time zone", dispensable=2),
            ListColumn("Next", dispensable=1),
            ListColumn("Last run", fit=CellOverflow.WRAPPED),
            ListColumn("Paid by", fit=CellOverflow.WRAPPED, dispensable=3),
        ],
        row=lambda schedule: (
            schedule.name,
            schedule.state,
            schedule.cron or (trigger_text(schedule.trigger) if schedule.trigger else ""),
            schedule.zone if schedule.cron else "",
            "" if schedule.next_at is None else schedule.next_at,
            "" if schedule.last_run is None else _outcome(schedule.last_run),
            schedule.owner,
        ),
        key=lambda schedule: schedule.name,
        nothing="There is no schedule yet. Create one: "
        "slipway schedule create nightly --cron '0 2 * * *' --job JOB",
    )


@command(app, "show")
def show_schedule(
    session: Session, schedule: ScheduleArgument, project: ProjectOption = None
) -> None:
    """Show one schedule, its next times and its last run."""
    show(session, session.client.schedules.get(schedule, project=session.project(project)))


@command(app, "runs")
def list_runs(
    session: Session,
    schedule: ScheduleArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the runs of a schedule, the latest first."""
    pages = session.client.schedules.runs(schedule, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Due"),
            ListColumn("State"),
            ListColumn("Outcome"),
            ListColumn("Started", dispensable=1),
            ListColumn("Why", fit=CellOverflow.WRAPPED),
        ],
        row=lambda run: (
            run.due_at,
            run.state,
            run.outcome or "",
            _work(run),
            run.reason,
        ),
        key=lambda run: run.id,
        nothing="It has not run yet.",
    )


@command(app, "edit")
def edit(
    session: Session,
    schedule: ScheduleArgument,
    cron: CronOption = None,
    on: EventOption = None,
    zone: ZoneOption = None,
    job: JobOption = None,
    sweep: SweepOption = None,
    pipeline: PipelineOption = None,
    pipeline_run: PipelineRunOption = None,
    param: ParameterOption = None,
    code: CodeOption = ".",
    missed: MissedOption = None,
    overlap: OverlapOption = None,
    run_as: RunAsOption = None,
    project: ProjectOption = None,
) -> None:
    """Change a schedule. You pay for what it starts from then on."""
    changes = (cron, on, zone, job, sweep, pipeline, pipeline_run, param, missed, overlap, run_as)
    if all(value is None for value in changes):
        raise UsageMistake(
            "Nothing to change is named.",
            field="cron",
            next_step="Add --cron, --on, --zone, --job, --sweep, --pipeline, --pipeline-run, "
            "--param, --missed, --overlap or --as.",
        )
    slug = session.project(project)
    if param and pipeline is None and pipeline_run is None:
        current = session.client.schedules.get(schedule, project=slug).parameters
    else:
        current = {}
    template = (pipeline, pipeline_run, param, code, slug)
    with _pipeline_of(session, *template, current=current) as (start, parameters):
        changed = session.client.schedules.edit(
            schedule,
            cron=cron,
            trigger=_trigger(on),
            zone=zone,
            job=job,
            sweep=sweep,
            pipeline=start,
            pipeline_run=pipeline_run,
            parameters=parameters,
            missed=missed,
            overlap=overlap,
            run_as=run_as,
            project=slug,
        )
    show(session, changed)


@command(app, "pause")
def pause(session: Session, schedule: ScheduleArgument, project: ProjectOption = None) -> None:
    """Start nothing until the schedule is resumed. What it has started goes on."""
    show(session, session.client.schedules.pause(schedule, project=session.project(project)))


@command(app, "resume")
def resume(session: Session, schedule: ScheduleArgument, project: ProjectOption = None) -> None:
    """Resume a paused schedule. You pay for what it starts from then on."""
    show(session, session.client.schedules.resume(schedule, project=session.project(project)))


@command(app, "run")
def run(session: Session, schedule: ScheduleArgument, project: ProjectOption = None) -> None:
    """Run a schedule once at once, beside its times. You pay for it."""
    made = session.client.schedules.run(schedule, project=session.project(project))
    if session.output.as_json:
        session.output.document(made)
    elif session.output.quiet:
        session.output.line(made.id)
    else:
        session.output.line(
            f"It starts within seconds. To see it: slipway schedule runs {schedule}"
        )


@command(app, "hook")
def hook(session: Session, schedule: ScheduleArgument, project: ProjectOption = None) -> None:
    """Create the secret URL of a schedule's webhook. An older one ends."""
    made = session.client.schedules.create_hook(schedule, project=session.project(project))
    if session.output.as_json:
        session.output.document(made)
        return
    session.output.line(made.url)
    session.output.note("It is shown only now. Whoever has it can start the schedule.")


@command(app, "delete")
def delete(
    session: Session, schedule: ScheduleArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """Delete a schedule. What it has started goes on."""
    slug = session.project(project)
    confirm(f"Delete the schedule {schedule}?", yes=yes, output=session.output)
    session.client.schedules.delete(schedule, project=slug)
    if session.output.as_json:
        session.output.document({"deleted": schedule})
    else:
        session.output.note(f"Deleted {schedule}.")


@contextmanager
def _pipeline_of(
    session: Session,
    source: str | None,
    run_id: str | None,
    param: list[str] | None,
    code: str,
    slug: str,
    *,
    current: Mapping[str, Any] | None = None,
) -> Iterator[tuple[PipelineRunIn | None, dict[str, Any] | None]]:
    """Read the pipeline in `source`, upload its code, and yield it with the parameters."""
    texts = parse_pairs(param or (), option="--param")
    if source is None:
        if run_id is not None and texts:
            current = session.client.pipelines.get(run_id, project=slug).parameters
        yield None, _typed_like(current or {}, texts) or None
        return
    pipeline = read_pipeline(source, folder=code)
    parameters = typed_values(pipeline, texts)
    with create_snapshot(session, code, None, None, DEFAULT_MAX_MB) as snapshot:
        upload(session, snapshot, slug)
        yield run_body(pipeline, {}, snapshot), parameters


def _trigger(text: str | None) -> dict[str, Any] | None:
    """Return the trigger that is written as KIND:NAME. Raises UsageMistake."""
    if text is None:
        return None
    kind, _, name = text.partition(":")
    if text == "webhook":
        return {"event": "webhook"}
    if name and kind == "dataset":
        return {"event": "dataset_version", "dataset": name}
    if name and kind == "model":
        return {"event": "model_version", "model": name}
    if name and kind == "drift":
        return {"event": "drift_alert", "endpoint": name}
    if name and kind == "labels":
        endpoint, _, count = name.partition(":")
        if count.isdecimal():
            return {"event": "labels", "endpoint": endpoint, "count": int(count)}
    if name and kind == "stage":
        model, at, alias = name.partition("@")
        model, slash, stage = model.partition("/")
        chosen = {"alias": alias} if at else {"stage": stage} if slash else {}
        return {"event": "model_stage", "model": model} | chosen
    raise UsageMistake(
        f"{text} is no event.",
        field="on",
        next_step="Write dataset:NAME, model:NAME, stage:MODEL, drift:ENDPOINT, "
        "labels:ENDPOINT:1000 or webhook.",
    )


def _typed_like(current: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return values that were written as text: JSON, unless the present value is a text."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        values[name] = text
        if not isinstance(current.get(name), str):
            with suppress(ValueError):
                values[name] = json.loads(text)
    return values


def _local(at: datetime) -> str:
    """Return a time in its own time zone, with the offset."""
    return at.strftime("%a %Y-%m-%d %H:%M %z")


def _template_text(schedule: ScheduleOut) -> str:
    if schedule.pipeline is not None:
        run = f", as in {schedule.pipeline_run}" if schedule.pipeline_run else ""
        return f"pipeline {schedule.pipeline}{run}"
    return f"job {schedule.job}" if schedule.job is not None else f"sweep {schedule.sweep}"


def _work(run: ScheduledRunOut) -> str:
    return run.job or run.sweep or run.pipeline_run or ""


def _outcome(run: ScheduledRunOut) -> str:
    return run.outcome or run.state


def _last_text(run: ScheduledRunOut | None) -> list[str]:
    if run is None:
        return []
    work = _work(run)
    first = f"{_local(run.due_at)}: {_outcome(run)}{f' ({work})' if work else ''}"
    return [first, run.reason] if run.reason else [first]
