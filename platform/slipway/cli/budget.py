"""`slipway budget`: spending limits of projects, teams and people."""

from typing import Annotated

import typer

from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import Yes
from slipway.cli.prompts import confirm
from slipway.cli.quantities import parse_price
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.schemas.money import dollars
from slipway.schemas.spend import BudgetOut, BudgetPeriod

app = typer.Typer(no_args_is_help=True, help="Budgets: list, set, change, override, delete.")

BudgetArgument = Annotated[str, typer.Argument(metavar="BUDGET", help="Id of the budget.")]
Stops = Annotated[
    bool | None,
    typer.Option(
        "--stop/--notify-only",
        help="At the limit, stop running work or only notify.",
        show_default=False,
    ),
]
CountsExempt = Annotated[
    bool | None,
    typer.Option(
        "--with-endpoints/--without-endpoints",
        help="Also stop endpoints at the limit.",
        show_default=False,
    ),
]


def show(session: Session, budget: BudgetOut) -> None:
    """Write one budget."""
    if session.output.as_json:
        session.output.document(budget)
    elif session.output.quiet:
        session.output.line(budget.id)
    else:
        session.output.facts(
            {
                "Id": budget.id,
                "Of": budget.name,
                "Limit": f"{dollars(budget.limit_nano_usd)} ({budget.window})",
                "Spent": dollars(budget.spent_nano_usd),
                "Reserved": dollars(budget.reserved_nano_usd),
                "Left": dollars(budget.left_nano_usd),
                "Overshoot": dollars(budget.overshoot_nano_usd),
                "At the limit": "stops running work" if budget.stops else "only notifies",
                "Endpoints too": budget.counts_exempt,
                "Overridden until": budget.override_until,
                "Notifications": [alert.message for alert in budget.alerts],
            }
        )
        session.output.note_omitted(budget.alerts_left_out, "alert")


@command(app, "list")
def list_budgets(session: Session, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> None:
    """List the budgets you can see, with what is spent and left."""
    show_list(
        session,
        collect(session.client.budgets.list(), limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id", style="bold"),
            ListColumn("Of", fit=CellOverflow.WRAPPED),
            ListColumn("Window"),
            ListColumn("Limit"),
            ListColumn("Spent"),
            ListColumn("Left"),
        ],
        row=lambda b: (
            b.id,
            b.name,
            b.window,
            dollars(b.limit_nano_usd),
            dollars(b.spent_nano_usd),
            dollars(b.left_nano_usd),
        ),
        key=lambda b: b.id,
        nothing="There is no budget yet. Set one: slipway budget set 500 --project PROJECT",
    )


@command(app, "show")
def show_budget(session: Session, budget: BudgetArgument) -> None:
    """Show one budget and its notifications."""
    show(session, session.client.budgets.get(budget))


@command(app, "set")
def set_budget(
    session: Session,
    limit: Annotated[str, typer.Argument(metavar="DOLLARS", help="The limit: 500, or 0.25.")],
    project: Annotated[str | None, typer.Option("--project", help="Limit a project.")] = None,
    team: Annotated[str | None, typer.Option("--team", help="Limit a team.")] = None,
    person: Annotated[
        str | None, typer.Option("--person", help="Limit a person, by e-mail address.")
    ] = None,
    period: Annotated[
        BudgetPeriod, typer.Option("--period", help="A month, or in total.")
    ] = BudgetPeriod.MONTH,
    stops: Stops = None,
    counts_exempt: CountsExempt = None,
) -> None:
    """Limit what a project, a team or a person may spend."""
    made = session.client.budgets.create(
        parse_price(limit, option="DOLLARS"),
        project=project,
        team=team,
        person=person,
        period=period,
        stops=stops is not False,
        counts_exempt=bool(counts_exempt),
    )
    show(session, made)


@command(app, "edit")
def edit(
    session: Session,
    budget: BudgetArgument,
    limit: Annotated[str | None, typer.Option("--limit", help="The new limit in dollars.")] = None,
    stops: Stops = None,
    counts_exempt: CountsExempt = None,
) -> None:
    """Change a budget, for example raise its limit."""
    changed = session.client.budgets.edit(
        budget,
        limit_nano_usd=None if limit is None else parse_price(limit, option="--limit"),
        stops=stops,
        counts_exempt=counts_exempt,
    )
    show(session, changed)


@command(app, "override")
def override(
    session: Session,
    budget: BudgetArgument,
    hours: Annotated[
        float, typer.Option("--hours", min=0, help="Duration in hours. 0 ends the override.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Reason, recorded in the audit log.")],
) -> None:
    """Suspend the limit for some hours."""
    show(session, session.client.budgets.override(budget, hours=hours, reason=reason))


@command(app, "delete")
def delete(session: Session, budget: BudgetArgument, yes: Yes = False) -> None:
    """Remove a limit."""
    value = session.client.budgets.get(budget)
    confirm(f"Remove the budget of {value.name}?", yes=yes, output=session.output)
    session.client.budgets.delete(budget)
    session.output.note(f"{value.name} has no such limit any more.")
