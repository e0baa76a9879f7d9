"""`slipway train`: submit the code of a folder as a job."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from slipway.cli.completion import complete_pool, complete_tier
from slipway.cli.environment_option import EnvironmentOption, PythonOption
from slipway.cli.exits import ExitCode, UsageMistake
from slipway.cli.project import ProjectOption
from slipway.cli.quantities import parse_minutes, parse_pairs, parse_size
from slipway.cli.session import Session, command
from slipway.cli.transfer import progress_bar
from slipway.cli.watch import print_new_job, watch
from slipway.errors import InvalidInput, NotFound
from slipway.requirement_files.names import names_packages
from slipway.resources.jobs import job_body
from slipway.schemas.backends import BACKENDS
from slipway.schemas.frameworks import FRAMEWORKS
from slipway.schemas.money import dollars
from slipway.schemas.training import JobIn, JobOut, Quote
from slipway.snapshots import DEFAULT_LIMIT_BYTES, HARD_LIMIT_BYTES, Snapshot, take_snapshot
from slipway.training import requirements_fields

app = typer.Typer()
_MEGABYTE = 1000**2
_NAMED = 5

AnyQuote = TypeVar("AnyQuote")
ScriptArgument = Annotated[
    str, typer.Argument(metavar="SCRIPT", help="Python file or notebook to run.")
]
ArgsArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="ARGS", help="Arguments of the script, after --."),
]
NodesOption = Annotated[int | None, typer.Option("--nodes", min=1, help="Number of machines.")]
ProcsOption = Annotated[int | None, typer.Option("--procs", min=1, help="Processes per machine.")]
StrategyOption = Annotated[
    str | None, typer.Option("--strategy", help="Distribution strategy: ddp, zero3, auto …")
]
FrameworkOption = Annotated[
    str | None,
    typer.Option(
        "--framework",
        metavar=f"[{'|'.join(FRAMEWORKS)}]",
        autocompletion=lambda: list(FRAMEWORKS),
        help="Form a cluster of it over all processes; the script runs once, connected to it.",
    ),
]
BackendOption = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar=f"[{'|'.join(BACKENDS)}]",
        autocompletion=lambda: list(BACKENDS),
        help="Isolation of ranks: a process of the node, or a container.",
    ),
]
TierOption = Annotated[
    str | None,
    typer.Option(
        "--tier", help="Hardware of one task. See slipway tier list.", autocompletion=complete_tier
    ),
]
PoolOption = Annotated[
    str | None,
    typer.Option(
        "--pool",
        help="Where another scheduler allocates the nodes. See slipway pool list.",
        autocompletion=complete_pool,
    ),
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param", metavar="NAME=VALUE", help="Parameter, passed to the script as --NAME=VALUE."
    ),
]
ParentOption = Annotated[
    str | None,
    typer.Option(
        "--parent",
        metavar="JOB",
        help="Make it a part of this job: it stops with it, and its cost counts there.",
    ),
]
NameOption = Annotated[str | None, typer.Option("--name", help="Name of the job.")]
AttemptsOption = Annotated[
    int | None,
    typer.Option(
        "--max-attempts",
        min=1,
        max=20,
        help="Maximum number of attempts. Restarts after a lost node (at most 10) or a preemption "
        "do not count.",
    ),
]
RequirementsOption = Annotated[
    Path | None,
    typer.Option(
        "--requirements",
        "-r",
        metavar="FILE",
        help="Packages the job needs. Default: requirements.txt, uv.lock, poetry.lock, "
        "conda-lock.yml, environment.yml or pyproject.toml nearest to the script; with --backend "
        "docker, a Dockerfile, too.",
    ),
]
NoRequirementsOption = Annotated[
    bool,
    typer.Option("--no-requirements", help="Use the environment of the installation."),
]
DatasetOption = Annotated[
    list[str] | None,
    typer.Option("--dataset", metavar="NAME:VERSION", help="Dataset version to use. Repeatable."),
]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="NAME=VALUE", help="Tag for cost reports. Repeatable."),
]
PriorityOption = Annotated[
    int | None,
    typer.Option("--priority", min=-100, max=100, help="Priority among your own jobs."),
]
HoursOption = Annotated[float | None, typer.Option("--max-hours", help="Time limit in hours.")]
HangOption = Annotated[
    int | None,
    typer.Option(
        "--hang-minutes", min=1, help="Stop the job if no rank makes progress for this long."
    ),
]
PreemptibleOption = Annotated[
    bool,
    typer.Option(
        "--preemptible",
        help="Cheaper: other work may take its place, then it waits and resumes from its "
        "checkpoint.",
    ),
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option(
        "--keep",
        metavar="PATTERN",
        help="Files of the working folder to keep with the run, for example 'outputs/*' or "
        "'*.ckpt'. Default: all that the job writes. Repeatable.",
    ),
]
KeepLimitOption = Annotated[
    str | None,
    typer.Option(
        "--keep-limit",
        metavar="SIZE",
        help="Most bytes to keep for each machine, for example 500MB. 0: nothing. Default: 2GB.",
    ),
]
KeepFailedOption = Annotated[
    str | None,
    typer.Option(
        "--keep-failed",
        metavar="TIME",
        help="Keep the task for this long if it fails, for example 15m, so that you can open a "
        "shell in it. It costs as while it runs.",
    ),
]
CodeOption = Annotated[
    str, typer.Option("--code", metavar="FOLDER", help="Folder of the code to upload.")
]
IncludeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="FILE",
        help="Include a file or folder that is ignored or looks like a secret.",
    ),
]
MaxMbOption = Annotated[
    int,
    typer.Option(
        "--max-mb",
        min=1,
        max=HARD_LIMIT_BYTES // _MEGABYTE,
        help="Maximum size of the code in megabytes.",
    ),
]
WatchOption = Annotated[
    bool,
    typer.Option(
        "--watch", "-w", help="Follow the log until the job ends, and exit with its outcome."
    ),
]
DEFAULT_MAX_MB = DEFAULT_LIMIT_BYTES // _MEGABYTE


@command(app, "train")
def train(
    session: Session,
    script: ScriptArgument,
    args: ArgsArgument = None,
    nodes: NodesOption = None,
    procs: ProcsOption = None,
    strategy: StrategyOption = None,
    framework: FrameworkOption = None,
    backend: BackendOption = None,
    tier: TierOption = None,
    pool: PoolOption = None,
    param: ParamOption = None,
    requirements: RequirementsOption = None,
    no_requirements: NoRequirementsOption = False,
    environment: EnvironmentOption = None,
    python: PythonOption = None,
    dataset: DatasetOption = None,
    tag: TagOption = None,
    name: NameOption = None,
    parent: ParentOption = None,
    priority: PriorityOption = None,
    max_attempts: AttemptsOption = None,
    max_hours: HoursOption = None,
    hang_minutes: HangOption = None,
    preemptible: PreemptibleOption = False,
    keep: KeepOption = None,
    keep_limit: KeepLimitOption = None,
    keep_failed: KeepFailedOption = None,
    code: CodeOption = ".",
    include: IncludeOption = None,
    max_mb: MaxMbOption = DEFAULT_MAX_MB,
    project: ProjectOption = None,
    quote: Annotated[
        bool, typer.Option("--quote", help="Show price and waiting time without submitting.")
    ] = False,
    watch_it: WatchOption = False,
) -> None:
    """Run a script as a job, on any number of machines and processes."""
    _require_one_source(requirements, no_requirements, environment)
    slug = session.project(project)
    with create_snapshot(session, code, script, include, max_mb) as snapshot:
        body = job_body(
            script=snapshot.script(script),
            snapshot=snapshot.digest,
            git=snapshot.git,
            args=args or (),
            params=parse_pairs(param or (), option="--param"),
            nodes=nodes,
            procs=procs,
            strategy=strategy,
            framework=framework,
            backend=backend,
            tier=tier,
            pool=pool,
            **requirements_fields(snapshot, "" if no_requirements else requirements),
            environment=environment,
            python=python,
            datasets=dataset,
            tags=parse_pairs(tag or (), option="--tag") or None,
            name=name,
            parent=parent,
            priority=priority,
            max_attempts=max_attempts,
            max_hours=max_hours,
            hang_after_minutes=hang_minutes,
            preemptible=preemptible or None,
            keep=keep,
            keep_limit_bytes=parse_size(keep_limit, option="--keep-limit"),
            keep_failed_minutes=parse_minutes(keep_failed, option="--keep-failed"),
        )
        if quote:
            ask = partial(session.client.jobs.quote, body, project=slug)
            show_quote(session, request_quote(session, snapshot, body, slug, ask))
            return
        upload(session, snapshot, slug)
    with noted_interruption(session):
        job = session.client.jobs.submit_body(body, project=slug)
    finish(session, job, watch_it=watch_it)


def _require_one_source(
    requirements: object, no_requirements: bool, environment: str | None
) -> None:
    """Raise UsageMistake if two options say where the packages come from."""
    options = {
        "--requirements": requirements is not None,
        "--no-requirements": no_requirements,
        "--environment": environment is not None,
    }
    given = [option for option, is_given in options.items() if is_given]
    if len(given) > 1:
        raise UsageMistake(
            f"{' and '.join(given)} contradict each other.", next_step="Leave one of them out."
        )


def create_snapshot(
    session: Session,
    folder: str,
    script: str | None,
    include: list[str] | None,
    max_mb: int,
) -> Snapshot:
    """Take a snapshot, and print which files were left out."""
    snapshot = take_snapshot(
        folder, script=script, include=include or (), limit_bytes=max_mb * _MEGABYTE
    )
    for item in snapshot.left_out[:_NAMED]:
        session.output.note(f"Left out: {item.path} {item.reason}.")
    if len(snapshot.left_out) > _NAMED:
        session.output.note(f"Left out: {len(snapshot.left_out) - _NAMED} more files.")
    if any("secret" in item.reason for item in snapshot.left_out):
        session.output.note("Include a file anyway with --include FILE.")
    if snapshot.note:
        session.output.note(snapshot.note)
    return snapshot


def upload(session: Session, snapshot: Snapshot, project: str) -> None:
    """Upload a snapshot with a progress bar."""
    with progress_bar(session, "Uploading code", total_bytes=snapshot.size_bytes) as bar:
        session.client.snapshots.upload(snapshot, project=project, progress=bar.show)


def finish(session: Session, job: JobOut, *, watch_it: bool) -> None:
    """Print a job that was just submitted, or watch it."""
    if watch_it:
        print_new_job(session, job)
        watch(session, job)
    elif session.output.as_json:
        session.output.document(job)
    elif session.output.quiet:
        session.output.line(job.workload.id)
    else:
        workload = job.workload
        session.output.facts(
            {
                "Job": workload.id,
                "Page": session.client.jobs.page(workload.id, project=workload.project),
                "Price": price_text(job.nano_usd_per_hour, job.workload.full_nano_usd_per_hour),
                "State": workload.state,
                "Why": workload.explanation,
            }
        )


def price_text(nano_usd: int, full_nano_usd: int) -> str:
    """Return a price an hour, beside the full price where that is another one."""
    text = f"{dollars(nano_usd)} an hour"
    if full_nano_usd <= nano_usd:
        return text
    return f"{text} (preemptible, instead of {dollars(full_nano_usd)})"


def show_quote(session: Session, quote: Quote) -> None:
    """Print the cost of a job and whether it would wait."""
    if session.output.as_json:
        session.output.document(quote)
        return
    session.output.facts(
        {
            "Price": price_text(quote.nano_usd_per_hour, quote.full_nano_usd_per_hour),
            "Expected": expected_text(quote),
            "Budget": budgets_shown(quote),
            **packages_shown(quote),
            **({"Files": quote.files} if quote.files else {}),
            "Fits": quote.can_ever_run,
            "Would wait": quote.would_wait,
            "Why": quote.explanation,
        }
    )


def budgets_shown(quote: Quote, all_nano_usd: int = 0) -> list[str]:
    """Return a line for each budget that has to admit a job, or all jobs of a sweep."""
    lines = []
    for budget in quote.budgets:
        left, limit = dollars(budget.left_nano_usd), dollars(budget.limit_nano_usd)
        remark = ""
        if not budget.would_admit:
            remark = ", which is too little for this job"
        elif budget.left_nano_usd < all_nano_usd:
            remark = ", which is less than all trials are expected to cost"
        lines.append(f"{budget.name}: {left} of {limit} left{remark}")
    return lines


def packages_shown(quote: Quote) -> dict[str, str]:
    """Return the rows on the packages of a job and its Python, none while they are not known."""
    if quote.packages is None:
        return {}
    python = {"Python": quote.packages.python} if quote.packages.python else {}
    return {"Packages": quote.packages.explanation, **python}


def expected_text(quote: Quote) -> str:
    """Return the expected cost of a job, from similar jobs."""
    if quote.expected is None:
        return "no history yet"
    expected_cost = quote.expected
    return (
        f"{dollars(expected_cost.nano_usd)} (from {dollars(expected_cost.low_nano_usd)} to "
        f"{dollars(expected_cost.high_nano_usd)} in {expected_cost.runs} similar jobs)"
    )


def request_quote(
    session: Session,
    snapshot: Snapshot,
    body: JobIn,
    project: str,
    ask: Callable[[], AnyQuote],
) -> AnyQuote:
    """Request a quote for the job, or for what consists of such jobs, by `ask`.

    The code is uploaded if it names packages or the server requires it.
    """
    names_some = (
        body.requirements is None
        and body.environment is None
        and names_packages(body.script, snapshot.paths.__contains__)
    )
    if body.requirements_file is not None or names_some:
        upload(session, snapshot, project)
    try:
        return ask()
    except (InvalidInput, NotFound) as error:
        if error.field != "snapshot":
            raise
    upload(session, snapshot, project)
    return ask()


@contextlib.contextmanager
def noted_interruption(session: Session) -> Iterator[None]:
    """On an interrupt during submission, print that the job may exist."""
    try:
        yield
    except KeyboardInterrupt:
        session.output.note("The job may have been submitted. Check: slipway job list")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
