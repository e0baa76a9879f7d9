"""`slipway sweep`: start, inspect and control sweeps."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from slipway.cli.environment_option import EnvironmentOption, PythonOption
from slipway.cli.exits import ExitCode, UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.quantities import parse_minutes, parse_pairs
from slipway.cli.session import Session, command
from slipway.cli.sweep_options import (
    AlgorithmOption,
    ConstraintOption,
    EtaOption,
    MetricOption,
    MinValuesOption,
    ParallelOption,
    QuoteOption,
    RangeOption,
    RetriesOption,
    SchedulerOption,
    SeedOption,
    SweepArgument,
    WarmStartOption,
)
from slipway.cli.sweep_results import parameters_text, repeat, show_front, show_repeats
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.train import (
    DEFAULT_MAX_MB,
    ArgsArgument,
    AttemptsOption,
    BackendOption,
    CodeOption,
    DatasetOption,
    HoursOption,
    IncludeOption,
    KeepFailedOption,
    MaxMbOption,
    NodesOption,
    PoolOption,
    PreemptibleOption,
    ProcsOption,
    RequirementsOption,
    TagOption,
    TierOption,
    budgets_shown,
    create_snapshot,
    packages_shown,
    price_text,
    request_quote,
    upload,
)
from slipway.parameter_spaces import is_range
from slipway.resources.jobs import job_body
from slipway.resources.sweeps import sweep_body
from slipway.schemas.money import dollars
from slipway.schemas.sweeps import (
    BestTrial,
    Metric,
    SweepIn,
    SweepOut,
    SweepQuote,
    SweepState,
    TrialOut,
)
from slipway.snapshots import Snapshot
from slipway.sweep_files import SweepFile, read_sweep_file
from slipway.training import requirements_fields

_FILES = (".yaml", ".yml")


class _StartsByDefault(typer.core.TyperGroup):
    """A group whose first word, if it is no command, is the script of `start`."""

    default = "start"

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = [self.default, *args]
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=_StartsByDefault,
    no_args_is_help=True,
    help="Sweeps: search for parameters. Start one: slipway sweep train.py --param …",
)
SourceArgument = Annotated[
    str,
    typer.Argument(metavar="SCRIPT", help="Python file or notebook, or a sweep as a YAML file."),
]


@command(app, "start")
def start(
    session: Session,
    source: SourceArgument,
    args: ArgsArgument = None,
    param: RangeOption = None,
    metric: MetricOption = None,
    constraint: ConstraintOption = None,
    warm_start: WarmStartOption = None,
    trials: Annotated[int | None, typer.Option("--trials", min=1, help="Number of trials.")] = None,
    parallel: ParallelOption = None,
    algorithm: AlgorithmOption = None,
    retries: RetriesOption = None,
    seed: SeedOption = None,
    scheduler: SchedulerOption = None,
    min_values: MinValuesOption = None,
    eta: EtaOption = None,
    nodes: NodesOption = None,
    procs: ProcsOption = None,
    backend: BackendOption = None,
    tier: TierOption = None,
    pool: PoolOption = None,
    requirements: RequirementsOption = None,
    environment: EnvironmentOption = None,
    python: PythonOption = None,
    dataset: DatasetOption = None,
    tag: TagOption = None,
    name: Annotated[str | None, typer.Option("--name", help="Name of the sweep.")] = None,
    max_attempts: AttemptsOption = None,
    max_hours: HoursOption = None,
    preemptible: PreemptibleOption = False,
    keep_failed: KeepFailedOption = None,
    code: CodeOption = ".",
    include: IncludeOption = None,
    max_mb: MaxMbOption = DEFAULT_MAX_MB,
    project: ProjectOption = None,
    quote: QuoteOption = False,
) -> None:
    """Start a sweep: jobs that run a script with different parameters."""
    _require_one_source(environment, requirements)
    slug, file = session.project(project), _file(session, source)
    ranges, params = _parameters(file, param)
    script, chosen = _script(source, file), _chosen_metrics(file, metric)
    machines: dict[str, Any] = {"nodes": nodes, "procs": procs, "backend": backend, "tier": tier}
    with create_snapshot(session, code, script, include, max_mb) as snapshot:
        job = job_body(
            script=snapshot.script(script),
            snapshot=snapshot.digest,
            git=snapshot.git,
            args=args or (),
            params=params,
            **machines,
            pool=pool,
            **requirements_fields(snapshot, requirements),
            environment=environment,
            python=python,
            datasets=dataset,
            tags=parse_pairs(tag or (), option="--tag") or None,
            max_attempts=max_attempts,
            max_hours=max_hours,
            preemptible=preemptible or None,
            keep_failed_minutes=parse_minutes(keep_failed, option="--keep-failed"),
        )
        body = sweep_body(
            job,
            parameters=ranges,
            metric=chosen,
            constraints=constraint or file.constraints,
            warm_start=warm_start or file.warm_start,
            **_settings(file, name=name, algorithm=algorithm, trials=trials, parallel=parallel),
            **_settings(file, retries=retries, seed=seed, scheduler=scheduler),
            **_settings(file, min_values=min_values, eta=eta),
        )
        price = _request_quote(session, snapshot, body, slug)
        if quote:
            _show_quote(session, price)
            return
        _send_code(session, snapshot, price, slug)
    show(session, _started(session, body, slug))


def _chosen_metrics(file: SweepFile, given: list[str] | None) -> Sequence[str | Metric]:
    if not given and not file.metrics:
        raise UsageMistake(
            "No metric is named.", field="metric", next_step="Add --metric accuracy:max."
        )
    return given or file.metrics


def _request_quote(session: Session, snapshot: Snapshot, body: SweepIn, slug: str) -> SweepQuote:
    ask = partial(session.client.sweeps.quote, body, project=slug)
    return request_quote(session, snapshot, body.job, slug, ask)


def _send_code(session: Session, snapshot: Snapshot, price: SweepQuote, slug: str) -> None:
    session.output.note(_price_text(price))
    upload(session, snapshot, slug)


def _require_one_source(environment: str | None, requirements: object) -> None:
    if environment is not None and requirements is not None:
        raise UsageMistake(
            "--environment and --requirements contradict each other.",
            next_step="Leave one of them out.",
        )


def _settings(file: SweepFile, **options: Any) -> dict[str, Any]:
    """Return settings by name: the option if there is one, else what the file says."""
    return {
        name: getattr(file, name) if value is None else value for name, value in options.items()
    }


def _parameters(file: SweepFile, param: list[str] | None) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the ranges and the plain values of the options and, behind them, of the file."""
    pairs = parse_pairs(param or (), option="--param")
    plain = {key: value for key, value in pairs.items() if not is_range(value)}
    ranges: dict[str, Any] = {
        **{key: space for key, space in file.parameters.items() if key not in plain},
        **{key: value for key, value in pairs.items() if is_range(value)},
    }
    if not ranges:
        raise UsageMistake(
            "No parameter has a range.",
            field="param",
            next_step="Add --param 'lr=loguniform(1e-4,1e-1)', or name a sweep file.",
        )
    params = {key: value for key, value in (file.params | plain).items() if key not in ranges}
    return ranges, params


def _started(session: Session, body: SweepIn, project: str) -> SweepOut:
    try:
        return session.client.sweeps.start(body, project=project)
    except KeyboardInterrupt:
        session.output.note("The sweep may have been started. Check: slipway sweep list")
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def show(session: Session, sweep: SweepOut) -> None:
    """Write one sweep."""
    if session.output.as_json:
        session.output.document(sweep)
    elif session.output.quiet:
        session.output.line(sweep.id)
    else:
        session.output.facts(
            {
                "Id": sweep.id,
                "Name": sweep.name,
                "State": sweep.state,
                "Why": sweep.explanation,
                "Next step": sweep.next_step,
                "Script": sweep.script,
                "Metric": [f"{each.name} ({each.goal})" for each in _metrics(sweep)],
                "Constraints": [str(bound) for bound in sweep.constraints],
                "Warm start": sweep.warm_start,
                "Learns from": sweep.warm_start_note,
                "Algorithm": sweep.algorithm,
                "Early stopping": _early_stopping_text(sweep),
                "Trials": f"{sweep.started} of {sweep.trials} started, {sweep.running} running, "
                f"{sweep.complete} complete, {sweep.failed} failed, {sweep.stopped} stopped, "
                f"{sweep.pruned} pruned{_infeasible_text(sweep)}",
                "Best": _best_text(sweep.best),
                "Best trials": f"slipway sweep front {sweep.id}" if sweep.other_metrics else None,
                "Cost": dollars(sweep.cost_nano_usd),
                "Expected cost": None
                if sweep.expected_nano_usd is None
                else dollars(sweep.expected_nano_usd),
                "Expected end": sweep.expected_end,
                "Saved": None
                if sweep.saved_nano_usd is None
                else f"about {dollars(sweep.saved_nano_usd)} by early stopping",
                "Importance": [f"{name} {share:.0%}" for name, share in sweep.importance.items()],
                "Tier": sweep.tier,
                "Started by": sweep.created_by,
                "Created": sweep.created_at,
                "Ended": sweep.ended_at,
            }
        )


@command(app, "list")
def list_sweeps(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only names that contain this text.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the sweeps of a project, newest first."""
    pages = session.client.sweeps.list(project=session.project(project), search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id"),
            ListColumn("Name", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("State"),
            ListColumn("Trials"),
            ListColumn("Metric", fit=CellOverflow.WRAPPED, dispensable=2),
            ListColumn("Best"),
            ListColumn("Cost", dispensable=1),
        ],
        row=lambda sweep: (
            sweep.id,
            sweep.name,
            sweep.state,
            f"{sweep.started}/{sweep.trials}",
            " ".join(f"{each.name}:{each.goal}" for each in _metrics(sweep)),
            "" if sweep.best is None else f"{sweep.best.value:.6g}",
            dollars(sweep.cost_nano_usd),
        ),
        key=lambda sweep: sweep.id,
        nothing="There is no sweep yet. Start one: slipway sweep train.py --param … --metric …",
    )


@command(app, "show")
def show_sweep(session: Session, sweep: SweepArgument, project: ProjectOption = None) -> None:
    """Show one sweep, its best trial and its cost."""
    show(session, session.client.sweeps.get(sweep, project=session.project(project)))


@command(app, "trials")
def list_trials(
    session: Session,
    sweep: SweepArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the trials of a sweep, newest first."""
    pages = session.client.sweeps.trials(sweep, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Trial"),
            ListColumn("State"),
            ListColumn("Value"),
            ListColumn("Parameters", fit=CellOverflow.WRAPPED),
            ListColumn("Job", dispensable=2),
            ListColumn("Why", fit=CellOverflow.CLIPPED, dispensable=1),
        ],
        row=_trial_row,
        key=lambda trial: trial.job,
        nothing="No trial has started yet.",
    )


command(app, "front")(show_front)
command(app, "repeat")(repeat)
command(app, "repeats")(show_repeats)


@command(app, "pause")
def pause(session: Session, sweep: SweepArgument, project: ProjectOption = None) -> None:
    """Start no further trials until the sweep is resumed."""
    show(session, session.client.sweeps.pause(sweep, project=session.project(project)))


@command(app, "resume")
def resume(session: Session, sweep: SweepArgument, project: ProjectOption = None) -> None:
    """Resume a paused sweep."""
    show(session, session.client.sweeps.resume(sweep, project=session.project(project)))


@command(app, "extend")
def extend(
    session: Session,
    sweep: SweepArgument,
    trials: Annotated[int, typer.Option("--trials", min=1, help="New total of trials.")],
    project: ProjectOption = None,
) -> None:
    """Run more trials. A finished sweep runs again."""
    show(session, session.client.sweeps.extend(sweep, trials, project=session.project(project)))


@command(app, "stop")
def stop(
    session: Session, sweep: SweepArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """Stop a sweep and its jobs for good."""
    confirm(f"Stop the sweep {sweep} and its jobs?", yes=yes, output=session.output)
    show(session, session.client.sweeps.stop(sweep, project=session.project(project)))


@command(app, "wait")
def wait(session: Session, sweep: SweepArgument, project: ProjectOption = None) -> None:
    """Wait until a sweep has ended or is paused, and exit with its outcome."""
    ended = session.client.sweeps.wait(sweep, project=session.project(project))
    show(session, ended)
    if ended.state != SweepState.FINISHED:
        raise typer.Exit(ExitCode.JOB_FAILED)


def _file(session: Session, source: str) -> SweepFile:
    if not source.endswith(_FILES):
        return SweepFile()
    file = read_sweep_file(source)
    if file.ignored:
        session.output.note(f"Not used: {', '.join(file.ignored)}.")
    return file


def _script(source: str, file: SweepFile) -> str:
    if not source.endswith(_FILES):
        return source
    if file.script is None:
        raise UsageMistake(
            f"{source} names no script.", field="program", next_step="Add program: train.py."
        )
    return str(Path(file.script))


def _price_text(quote: SweepQuote) -> str:
    total = (
        f"about {dollars(quote.expected_nano_usd)} in all, from earlier jobs of this name"
        if quote.expected_nano_usd is not None
        else "no history yet from which to estimate the total"
    )
    return (
        f"{quote.trials} trials, {quote.parallel} at once: "
        f"{dollars(quote.nano_usd_per_hour)} an hour; {total}. {quote.warm_start_note}".rstrip()
    )


def _show_quote(session: Session, quote: SweepQuote) -> None:
    if session.output.as_json:
        session.output.document(quote)
        return
    session.output.facts(
        {
            "Trials": f"{quote.trials}, {quote.parallel} at once",
            "Price": price_text(
                quote.nano_usd_per_hour, quote.job.full_nano_usd_per_hour * quote.parallel
            ),
            "Expected": "no history yet"
            if quote.expected_nano_usd is None
            else dollars(quote.expected_nano_usd),
            "Budget": budgets_shown(quote.job, quote.expected_nano_usd or 0),
            "Warm start": quote.warm_start_note,
            **packages_shown(quote.job),
            "Fits": quote.job.can_ever_run,
            "Would wait": quote.job.would_wait,
            "Why": quote.job.explanation,
        }
    )


def _early_stopping_text(sweep: SweepOut) -> str | None:
    if sweep.scheduler == "none":
        return None
    values = f"from {sweep.min_values} value{'' if sweep.min_values == 1 else 's'} on"
    if sweep.scheduler == "median":
        return f"median, {values}"
    return f"{sweep.scheduler}, {values}, eta {sweep.eta}"


def _best_text(best: BestTrial | None) -> list[str]:
    if best is None:
        return []
    values = [f"{name}={value}" for name, value in best.parameters.items()]
    return [f"{best.value:.6g} in trial {best.number}, job {best.job}", *values]


def _metrics(sweep: SweepOut) -> list[Metric]:
    return [sweep.metric, *sweep.other_metrics]


def _infeasible_text(sweep: SweepOut) -> str:
    return f"; {sweep.infeasible} of the complete ones infeasible" if sweep.infeasible else ""


def _trial_row(trial: TrialOut) -> tuple[str, ...]:
    values = [] if trial.value is None else [trial.value, *trial.other_values]
    return (
        str(trial.number),
        trial.state if trial.is_feasible else f"{trial.state}, infeasible",
        " ".join(f"{value:.6g}" for value in values),
        parameters_text(trial),
        trial.job,
        trial.explanation,
    )
