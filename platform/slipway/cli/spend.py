"""`slipway spend`: current and past cost."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from slipway.cli.completion import complete_project
from slipway.cli.exits import UsageMistake
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.transfer import receive_file
from slipway.schemas.money import dollars
from slipway.schemas.spend import ForecastOut, MachineCostOut, OverheadOut, ShareOut, SpendOut
from slipway.snapshots.limits import size_text

app = typer.Typer()


class Split(StrEnum):
    """Dimension that splits the spend of a window."""

    PROJECT = "project"
    PERSON = "person"
    TIER = "tier"
    KIND = "kind"
    DAY = "day"
    RUN = "run"
    TAG = "tag"
    EXPERIMENT = "experiment"
    ENDPOINT = "endpoint"
    STORED = "stored"


@command(app, "spend")
def spend(
    session: Session,
    window: Annotated[
        str, typer.Option("--window", help="today, 7d, month, or a month such as 2026-11.")
    ] = "month",
    project: Annotated[
        str | None,
        typer.Option("--project", help="Only this project.", autocompletion=complete_project),
    ] = None,
    by: Annotated[Split, typer.Option("--by", help="Split by.")] = Split.PROJECT,
    everything: Annotated[
        bool, typer.Option("--installation", help="The whole installation, for administrators.")
    ] = False,
    overhead: Annotated[
        bool,
        typer.Option(
            "--overhead",
            help="Machines of node groups and what they cost without work, for administrators.",
        ),
    ] = False,
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Export to this CSV file, with FOCUS columns.")
    ] = None,
) -> None:
    """Show the spend, the current cost rate and the forecast of the month."""
    if csv is not None:
        if everything:
            raise UsageMistake("--csv exports projects.", next_step="Leave out --installation.")
        with session.client.spend.export(window=window, project=project) as content:
            size_bytes = receive_file(session, content, csv, label="Exporting", option="--csv")
        session.output.note(f"{csv}: {size_bytes:,} bytes.")
        return
    source = session.client.spend
    if overhead:
        if project or everything:
            raise UsageMistake(
                "--overhead is of the installation.",
                next_step="Leave out --project and --installation.",
            )
        _overhead(session, source.overhead(window=window), by)
        return
    installation = (
        source.installation(window=window)
        if everything
        else source.get(window=window, project=project)
    )
    if session.output.as_json:
        session.output.document(installation)
    elif session.output.quiet:
        session.output.line(str(installation.nano_usd))
    else:
        session.output.facts(
            {
                "Window": f"{installation.window} (UTC)",
                "Spent": dollars(installation.nano_usd),
                "Current cost rate": f"{dollars(installation.nano_usd_per_hour)} an hour",
                "Forecast": _forecast_text(installation.forecast),
            }
        )
        sys.stdout.write("\n")
        _table(session, installation, by)


def _forecast_text(forecast: ForecastOut | None) -> str:
    if forecast is None:
        return "not before three full days of data"
    return (
        f"{dollars(forecast.nano_usd)} (from {dollars(forecast.low_nano_usd)} to "
        f"{dollars(forecast.high_nano_usd)}, from {forecast.days_seen} days)"
    )


def _table(session: Session, value: SpendOut, by: Split) -> None:
    if by is Split.RUN:
        session.output.table(
            [
                ListColumn("Id", style="bold"),
                ListColumn("Name", fit=CellOverflow.WRAPPED),
                ListColumn("Cost"),
            ],
            [(run.workload, run.name, dollars(run.nano_usd)) for run in value.runs],
        )
        if value.runs_left_out_nano_usd:
            cost = dollars(value.runs_left_out_nano_usd)
            session.output.note(f"Other runs, not shown, cost {cost} together; --csv has all.")
        return
    if by in (Split.EXPERIMENT, Split.ENDPOINT):
        _groups(session, value, by)
        return
    if by is Split.STORED:
        session.output.table(
            [
                ListColumn("What", style="bold"),
                ListColumn("Project"),
                ListColumn("Size"),
                ListColumn("An hour"),
            ],
            [
                (
                    stored.what,
                    stored.project,
                    size_text(stored.size_bytes),
                    dollars(stored.nano_usd_per_hour),
                )
                for stored in value.stored
            ],
        )
        session.output.note_omitted(value.stored_left_out, "store")
        return
    rows: list[tuple[str, str]]
    if by is Split.DAY:
        rows = [(day.day.isoformat(), dollars(day.nano_usd)) for day in value.by_day]
    else:
        shares: list[ShareOut] = getattr(value, f"by_{by.value}")
        rows = [(share.name, dollars(share.nano_usd)) for share in shares]
    session.output.table([ListColumn(by.value.title(), style="bold"), ListColumn("Cost")], rows)
    if not rows:
        session.output.note("There is no spend in this window.")
    if by is Split.TAG and value.are_tags_left_out:
        session.output.note("More tags, which cost less, are not shown; --csv has all.")


def _groups(session: Session, value: SpendOut, by: Split) -> None:
    """Print the cost of experiments or endpoints, and per thousand predictions."""
    _group_rows(session, value, by)
    if any(group.kind in value.groups_left_out for group in value.groups if group.noun == by.value):
        session.output.note(f"More {by.value}s, which cost less, are not shown; --csv has all.")


def _group_rows(session: Session, value: SpendOut, by: Split) -> None:
    group_costs = [group for group in value.groups if group.noun == by.value]
    columns = [
        ListColumn(by.value.title(), style="bold"),
        ListColumn("Project"),
        ListColumn("Cost"),
    ]
    if by is Split.EXPERIMENT:
        rows = [(group.name, group.project, dollars(group.nano_usd)) for group in group_costs]
        session.output.table(columns, rows)
        return
    session.output.table(
        [*columns, ListColumn("Predictions"), ListColumn("Per 1,000")],
        [
            (
                group.name,
                group.project,
                dollars(group.nano_usd),
                f"{group.done or 0:,}",
                "-" if group.nano_usd_per_1000 is None else dollars(group.nano_usd_per_1000),
            )
            for group in group_costs
        ],
    )


def _overhead(session: Session, value: OverheadOut, by: Split) -> None:
    """Print the cost of machines and its part without work, by group and, `by` day, by day."""
    if session.output.as_json:
        session.output.document(value)
        return
    if session.output.quiet:
        session.output.line(str(value.overhead_nano_usd))
        return
    session.output.facts(
        {
            "Window": f"{value.window} (UTC)",
            "Machines": dollars(value.nano_usd),
            "Work": dollars(value.work_nano_usd),
            "Overhead": f"{dollars(value.overhead_nano_usd)}, paid by no project",
        }
    )
    sys.stdout.write("\n")
    names = ["Machines", "Work", "Overhead", "Starting", "Idle", "Grace", "Ending"]
    columns = [ListColumn("Group", style="bold"), *(ListColumn(name) for name in names)]
    if by is Split.DAY:
        columns.insert(1, ListColumn("Day"))
        rows = [
            (group.group, day.day.isoformat(), *_machine_costs(day))
            for group in value.groups
            for day in group.by_day
        ]
    else:
        rows = [(group.group, *_machine_costs(group)) for group in value.groups]
    session.output.table(columns, rows)
    if not rows:
        session.output.note("No node group had a machine in this window.")


def _machine_costs(cost: MachineCostOut) -> tuple[str, ...]:
    return tuple(
        dollars(amount)
        for amount in (
            cost.nano_usd,
            cost.work_nano_usd,
            cost.overhead_nano_usd,
            cost.starting_nano_usd,
            cost.idle_nano_usd,
            cost.grace_nano_usd,
            cost.ending_nano_usd,
        )
    )
