"""`slipway sweep front`, `repeat` and `repeats`: the best trials, and a trial with other seeds."""

from typing import Annotated

import typer

from slipway.cli.project import ProjectOption
from slipway.cli.session import Session
from slipway.cli.sweep_options import SweepArgument
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.schemas.money import dollars
from slipway.schemas.sweeps import RepeatGroup, RepeatsOut, TrialOut

TrialOption = Annotated[
    int | None, typer.Option("--trial", min=0, help="Number of a trial; else the best one.")
]
SeedsOption = Annotated[
    list[int] | None,
    typer.Option("--seed", min=0, help="Seed of a job. Repeatable; without it the next three."),
]
SeedParameterOption = Annotated[
    str | None,
    typer.Option("--parameter", help="Name under which the script reads the seed: seed."),
]


def show_front(session: Session, sweep: SweepArgument, project: ProjectOption = None) -> None:
    """List the best trials of a sweep with several metrics: its Pareto front."""
    front = session.client.sweeps.front(sweep, project=session.project(project))
    if session.output.as_json:
        session.output.document(front)
        return
    session.output.table(
        columns=[
            ListColumn("Trial"),
            *(ListColumn(f"{each.name} ({each.goal})") for each in front.metrics),
            ListColumn("Parameters", fit=CellOverflow.WRAPPED),
            ListColumn("Job", dispensable=1),
        ],
        rows=[
            (
                str(trial.number),
                *(f"{value:.6g}" for value in (trial.value or 0.0, *trial.other_values)),
                parameters_text(trial),
                trial.job,
            )
            for trial in front.trials
        ],
    )
    if front.count > len(front.trials):
        session.output.note(f"The front has {front.count} trials.")


def repeat(
    session: Session,
    sweep: SweepArgument,
    trial: TrialOption = None,
    seed: SeedsOption = None,
    parameter: SeedParameterOption = None,
    project: ProjectOption = None,
    quote: Annotated[bool, typer.Option("--quote", help="Show the price only.")] = False,
) -> None:
    """Run the best trial, or another, again with other seeds."""
    slug, sweeps = session.project(project), session.client.sweeps
    price = sweeps.quote_repeat(
        sweep, project=slug, trial=trial, seeds=seed or (), parameter=parameter
    )
    if quote and session.output.as_json:
        session.output.document(price)
        return
    expected = (
        "" if price.expected_nano_usd is None else f"; about {dollars(price.expected_nano_usd)}"
    )
    session.output.note(
        f"{price.trials} jobs: {dollars(price.nano_usd_per_hour)} an hour{expected}."
    )
    if not quote:
        _show(
            session,
            sweeps.repeat(sweep, project=slug, trial=trial, seeds=seed or (), parameter=parameter),
        )


def show_repeats(session: Session, sweep: SweepArgument, project: ProjectOption = None) -> None:
    """List trials that ran again with other seeds, with the mean of their values."""
    _show(session, session.client.sweeps.repeats(sweep, project=session.project(project)))


def _show(session: Session, answer: RepeatsOut) -> None:
    if session.output.as_json:
        session.output.document(answer)
        return
    session.output.table(
        columns=[
            ListColumn("Trial"),
            ListColumn("Seed"),
            ListColumn("State"),
            ListColumn("Value"),
            ListColumn("Job", dispensable=1),
        ],
        rows=[
            (
                str(group.trial),
                str(each.seed),
                each.state,
                "" if each.value is None else f"{each.value:.6g}",
                each.job,
            )
            for group in answer.groups
            for each in group.repeats
        ],
    )
    for group in answer.groups:
        session.output.note(_summary(group))


def _summary(group: RepeatGroup) -> str:
    text = f"Trial {group.trial}: {group.value:.6g} in the sweep"
    if group.mean is None:
        return f"{text}; no repeat has ended yet."
    spread = "" if group.deviation is None else f" ± {group.deviation:.3g}"
    return f"{text}, mean {group.mean:.6g}{spread} with other seeds."


def parameters_text(trial: TrialOut) -> str:
    """Return the parameters of a trial in one line."""
    return " ".join(f"{name}={value}" for name, value in trial.parameters.items())
