"""`slipway job`: list, inspect and control training jobs."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from slipway.cli.build_logs import build_pieces, builds_to_show, show_builds
from slipway.cli.completion import complete_job
from slipway.cli.exits import UsageMistake
from slipway.cli.login import has_browser
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.quantities import parse_minutes, parse_pairs
from slipway.cli.session import Session, command
from slipway.cli.shell import attach, check_platform
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.train import (
    DEFAULT_MAX_MB,
    ArgsArgument,
    AttemptsOption,
    BackendOption,
    DatasetOption,
    FrameworkOption,
    IncludeOption,
    KeepFailedOption,
    MaxMbOption,
    NameOption,
    NodesOption,
    ParamOption,
    ProcsOption,
    StrategyOption,
    TierOption,
    WatchOption,
    create_snapshot,
    finish,
    noted_interruption,
    price_text,
    upload,
)
from slipway.cli.transfer import receive_file
from slipway.cli.watch import PipeScreen, shows_colours, watch
from slipway.console import LogLines
from slipway.schemas.base import PageOf
from slipway.schemas.money import dollars
from slipway.schemas.training import JobOut, LogPiece
from slipway.schemas.workloads import WorkloadState
from slipway.snapshots.limits import size_text

app = typer.Typer(no_args_is_help=True, help="Training jobs: logs, shells, cancel, resume, clone.")
_NAMED = 10

JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Id of the job.", autocompletion=complete_job),
]
RankOption = Annotated[int | None, typer.Option("--rank", min=0, help="Only this rank.")]
AttemptOption = Annotated[
    int | None, typer.Option("--attempt", min=1, help="Attempt. Default: the latest.")
]


def _ranks(job: JobOut) -> int:
    return job.workload.nodes * job.workload.procs


def show(session: Session, job: JobOut) -> None:
    """Write one job."""
    if session.output.as_json:
        session.output.document(job)
        return
    if session.output.quiet:
        session.output.line(job.workload.id)
        return
    workload, git = job.workload, job.git
    dirty = " with changes" if git is not None and git.is_dirty else ""
    details: dict[str, object] = {
        "Id": workload.id,
        "Name": workload.name,
        "State": workload.state,
        "Why": workload.explanation,
        "Next step": workload.next_step,
        "Script": " ".join([job.script, *job.args]),
        "Parameters": [f"{name}={value}" for name, value in job.params.items()],
        "Strategy": job.strategy,
        "Strategy reason": job.strategy_reason,
        "Framework": job.framework,
        "Ranks": f"{_ranks(job)} ({workload.nodes} x {workload.procs})",
        "Tier": workload.tier,
        "Back end": job.backend,
        "Pool": job.pool,
        "Network": workload.network,
        "Attempt": workload.attempt,
        "Step": job.step,
        "Checkpoint step": job.resumable_step,
        "Time to first step": _seconds(job.first_step_after_s),
        "Preemptible": "yes" if workload.preemptible else None,
        "Moved for other work": _times(workload.preemptions),
        "Price": price_text(
            job.nano_usd_per_hour, workload.full_nano_usd_per_hour if workload.preemptible else 0
        ),
        "Cost": dollars(job.cost_nano_usd),
        "Code": f"{job.snapshot.digest[:12]}, {job.snapshot.files} files, "
        f"{size_text(job.snapshot.size_bytes)}",
        "Commit": f"{git.commit[:12]} {git.branch}{dirty}" if git is not None else None,
        "Environment": job.environment_version or job.environment,
        "Python": job.python,
        "Datasets": job.datasets,
        "Kept files": _kept(job),
        "Not kept": _left_out(job),
        "Tags": [f"{name}={value}" for name, value in job.tags.items()],
        "Cloned from": job.cloned_from,
        "Submitted by": workload.submitted_by,
        "Created": workload.created_at,
        "Started": workload.started_at,
        "Ended": workload.ended_at,
        "Page": session.client.jobs.page(workload.id, project=workload.project),
    }
    session.output.facts(details)


def _times(count: int) -> str | None:
    if not count:
        return None
    return "once" if count == 1 else f"{count} times"


def _kept(job: JobOut) -> list[str]:
    """Return what was kept: a line for each task, then files that a known library wrote."""
    lines = [
        f"{files.kept_count} ({size_text(files.kept_bytes)}) in {files.prefix}/"
        for files in job.files
        if files.kept_count
    ]
    known = [(files.prefix, file) for files in job.files for file in files.kept if file.kind]
    lines += [f"{prefix}/{file.path}: {file.kind}" for prefix, file in known[:_NAMED]]
    return lines


def _left_out(job: JobOut) -> list[str]:
    """Return what was not kept, with reasons."""
    lines = []
    for files in job.files:
        named = files.left_out[:_NAMED]
        lines += [f"{file.path} ({size_text(file.size_bytes)}): {file.reason}" for file in named]
        if files.left_out_count > len(named):
            lines.append(f"{files.left_out_count - len(named)} more")
        if files.error:
            lines.append(files.error)
    return lines


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f} s"


@command(app, "list")
def list_jobs(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    state: Annotated[
        WorkloadState | None, typer.Option("--state", metavar="STATE", help="Only in this state.")
    ] = None,
    submitted_by: Annotated[
        str | None, typer.Option("--by", metavar="EMAIL", help="Only jobs of this person.")
    ] = None,
    tier: TierOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the jobs of a project, newest first."""
    pages = session.client.jobs.list(
        project=session.project(project),
        search=search,
        state=state,
        submitted_by=submitted_by,
        tier=tier,
    )
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id"),
            ListColumn("Name", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("State"),
            ListColumn("Step", dispensable=4),
            ListColumn("Tier", dispensable=3),
            ListColumn("Ranks", dispensable=5),
            ListColumn("By", fit=CellOverflow.WRAPPED, dispensable=6),
            ListColumn("Created", dispensable=1),
            ListColumn("Why", fit=CellOverflow.CLIPPED, dispensable=2),
        ],
        row=lambda j: (
            j.workload.id,
            j.workload.name,
            j.workload.state,
            j.step,
            j.workload.tier,
            _ranks(j),
            j.workload.submitted_by,
            j.workload.created_at,
            j.workload.explanation,
        ),
        key=lambda j: j.workload.id,
        nothing="No job was found. Submit one: slipway train SCRIPT",
    )


@command(app, "show")
def show_job(session: Session, job: JobArgument, project: ProjectOption = None) -> None:
    """Show one job."""
    show(session, session.client.jobs.get(job, project=session.project(project)))


@command(app, "logs")
def logs(
    session: Session,
    job: JobArgument,
    project: ProjectOption = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Follow the log until the job ends, and exit with its outcome."
        ),
    ] = False,
    rank: RankOption = None,
    attempt: AttemptOption = None,
    download: Annotated[
        Path | None,
        typer.Option("--download", metavar="FILE", help="Write the log of one rank to a file."),
    ] = None,
    build: Annotated[
        bool,
        typer.Option(
            "--build",
            help="Show the log of building the environment. It is shown without this option when "
            "the build failed or is running.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Show the log of a job, by rank, or of building its environment."""
    if follow and (download is not None or session.output.as_json):
        raise UsageMistake(
            "A followed log is text, not JSON.",
            next_step="Leave out --follow for a file or JSON.",
        )
    if session.output.as_json and download is None:
        raise UsageMistake(
            "With --json, a log needs an output file.",
            next_step="Add --download FILE to the command.",
        )
    slug = session.project(project)
    value = session.client.jobs.get(job, project=slug)
    builds = builds_to_show(session, value, always=build)
    if download is not None and (build or (builds and rank is None)):
        content = chain.from_iterable(build_pieces(session, value, each) for each in builds)
        _download(session, content, download, content_name="the build log", rank=None, yes=yes)
        return
    if download is not None:
        ranks_log = session.client.jobs.logs(job, project=slug, rank=rank or 0, attempt=attempt)
        content_name = f"rank {rank or 0}"
        _download(session, ranks_log, download, content_name=content_name, rank=rank or 0, yes=yes)
        return
    if follow and not build:
        watch(session, value, rank=rank, attempt=attempt)
    show_builds(session, value, builds)
    if build:
        if not builds:
            session.output.note("No environment was built for this job.")
        return
    ranks = [rank] if rank is not None else value.log_ranks or list(range(_ranks(value)))
    screen = PipeScreen(session)
    lines = LogLines(ranks=len(ranks), colours=shows_colours())
    attempt = attempt or max(1, value.workload.attempt)
    for number in ranks:
        for piece in _pieces(session, job, slug, number, attempt):
            screen.lines(lines.complete_lines(piece))
    screen.lines(lines.flush())


def _pieces(
    session: Session, job: str, project: str, rank: int, attempt: int
) -> Iterator[LogPiece]:
    offset = 0
    for data in session.client.jobs.logs(job, project=project, rank=rank, attempt=attempt):
        yield LogPiece.of(attempt=attempt, rank=rank, offset=offset, data=data)
        offset += len(data)


def _download(
    session: Session,
    content: Iterator[bytes],
    file: Path,
    *,
    content_name: str,
    rank: int | None,
    yes: bool,
) -> None:
    if file.exists():
        confirm(f"Replace the file {file}?", yes=yes, output=session.output)
    size_bytes = receive_file(session, content, file, label="Receiving", option="--download")
    if session.output.as_json:
        session.output.document({"path": str(file), "rank": rank, "size_bytes": size_bytes})
    elif session.output.quiet:
        session.output.line(str(file))
    session.output.note(f"{file}: {size_bytes:,} bytes of {content_name}.")


@command(app, "shell")
def shell(
    session: Session,
    job: JobArgument,
    project: ProjectOption = None,
    rank: Annotated[
        int | None,
        typer.Option("--rank", min=0, help="Rank to open it beside: the failed one, or 0."),
    ] = None,
) -> None:
    """Open a shell in a job that runs or is kept, with the rights and variables of a rank."""
    if session.output.as_json:
        raise UsageMistake("A shell is text, not JSON.", next_step="Leave out --json.")
    check_platform()
    opened = session.client.jobs.open_shell(job, project=session.project(project), rank=rank)
    raise typer.Exit(attach(opened))


@command(app, "cancel")
def cancel(session: Session, job: JobArgument, project: ProjectOption = None) -> None:
    """Cancel a job, or end a failed one that is kept. Ranks may save a checkpoint first."""
    value = session.client.jobs.cancel(job, project=session.project(project))
    if session.output.as_json:
        session.output.document(value)
    elif session.output.quiet:
        session.output.line(value.workload.id)
    session.output.note(
        f"{value.workload.id} is {value.workload.state}. Run it again: "
        f"slipway job clone {value.workload.id}"
    )


@command(app, "resume")
def resume(session: Session, job: JobArgument, project: ProjectOption = None) -> None:
    """Resume a job that a budget stopped, from its latest checkpoint."""
    value = session.client.jobs.resume(job, project=session.project(project))
    if session.output.as_json:
        session.output.document(value)
    elif session.output.quiet:
        session.output.line(value.workload.id)
    session.output.note(f"{value.workload.id} is {value.workload.state}.")


def _changed(
    params: dict[str, str], given: list[str] | None, without: list[str] | None
) -> dict[str, str]:
    """Return the parameters with some removed and some replaced."""
    kept = {key: value for key, value in params.items() if key not in (without or ())}
    return kept | parse_pairs(given or (), option="--param")


@command(app, "clone")
def clone(
    session: Session,
    job: JobArgument,
    args: ArgsArgument = None,
    param: ParamOption = None,
    without_param: Annotated[
        list[str] | None,
        typer.Option("--without-param", metavar="NAME", help="Remove this parameter."),
    ] = None,
    script: Annotated[
        str | None, typer.Option("--script", help="Another script of the same code.")
    ] = None,
    code: Annotated[
        str | None,
        typer.Option("--code", metavar="FOLDER", help="Use the current code of this folder."),
    ] = None,
    include: IncludeOption = None,
    max_mb: MaxMbOption = DEFAULT_MAX_MB,
    nodes: NodesOption = None,
    procs: ProcsOption = None,
    strategy: StrategyOption = None,
    framework: FrameworkOption = None,
    backend: BackendOption = None,
    tier: TierOption = None,
    dataset: DatasetOption = None,
    name: NameOption = None,
    max_attempts: AttemptsOption = None,
    preemptible: Annotated[
        bool | None,
        typer.Option(
            "--preemptible/--not-preemptible",
            help="Cheaper: other work may take its place. Default: as the job.",
            show_default=False,
        ),
    ] = None,
    keep_failed: KeepFailedOption = None,
    project: ProjectOption = None,
    watch_it: WatchOption = False,
) -> None:
    """Clone a job with the same code, parameters and hardware, except for the given changes."""
    slug = session.project(project)
    params = None
    if param or without_param:
        params = _changed(session.client.jobs.get(job, project=slug).params, param, without_param)
    digest, git = None, None
    if code is not None:
        with create_snapshot(session, code, script, include, max_mb) as snapshot:
            upload(session, snapshot, slug)
            digest, git = snapshot.digest, snapshot.git
            script = snapshot.script(script) if script is not None else None
    with noted_interruption(session):
        made = session.client.jobs.clone(
            job,
            project=slug,
            name=name,
            snapshot=digest,
            git=git,
            script=script,
            args=args,
            params=params,
            tier=tier,
            nodes=nodes,
            procs=procs,
            strategy=strategy,
            framework=framework,
            backend=backend,
            datasets=dataset,
            max_attempts=max_attempts,
            preemptible=preemptible,
            keep_failed_minutes=parse_minutes(keep_failed, option="--keep-failed"),
        )
    finish(session, made, watch_it=watch_it)


@command(app, "events")
def events(
    session: Session,
    job: JobArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the events of a job, newest first."""
    pages = session.client.jobs.events(job, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("At"),
            ListColumn("Attempt", dispensable=1),
            ListColumn("Kind"),
            ListColumn("Message", fit=CellOverflow.WRAPPED),
        ],
        row=lambda e: (e.at, e.attempt, e.kind, e.message),
        key=lambda e: e.kind,
        nothing="There are no events yet.",
    )


@command(app, "checkpoints")
def checkpoints(session: Session, job: JobArgument, project: ProjectOption = None) -> None:
    """List the verified checkpoints of a job."""
    items = session.client.jobs.checkpoints(job, project=session.project(project))
    show_list(
        session,
        PageOf(items=list(items)),
        columns=[
            ListColumn("Step"),
            ListColumn("Size"),
            ListColumn("Attempt", dispensable=1),
            ListColumn("Created"),
            ListColumn("In store since"),
        ],
        row=lambda c: (c.step, size_text(c.size_bytes), c.attempt, c.created_at, c.copied_at),
        key=lambda c: str(c.step),
        nothing="The job has no checkpoint yet.",
    )


@command(app, "open")
def open_page(session: Session, job: JobArgument, project: ProjectOption = None) -> None:
    """Open the page of a job in a browser, and write its address."""
    slug = session.project(project)
    value = session.client.jobs.get(job, project=slug)
    page = session.client.jobs.page(value.workload.id, project=slug)
    if session.output.as_json:
        session.output.document({"page": page})
        return
    session.output.line(page)
    if has_browser() and not session.output.quiet:
        typer.launch(page)
