"""`slipway pool`: machines that another scheduler allocates."""

import json
from typing import Annotated, Any

import typer

from slipway.cli.completion import complete_pool
from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.pool_helper import run_helper
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.schemas.money import dollars
from slipway.schemas.pools import PoolOut

app = typer.Typer(no_args_is_help=True, help="Pools of other schedulers: list, create, close.")

PoolArgument = Annotated[
    str, typer.Argument(metavar="POOL", help="Name of the pool.", autocompletion=complete_pool)
]
SettingOption = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", metavar="NAME=VALUE", help="Setting of the engine; VALUE may be JSON."
    ),
]
RequestsOption = Annotated[
    int | None,
    typer.Option("--requests", min=1, help="Requests that wait or run there at once."),
]
PriceOption = Annotated[
    int | None,
    typer.Option(
        "--price-percent",
        min=0,
        max=1000,
        help="Percent of the tier's price that work costs there.",
    ),
]
ForOption = Annotated[
    list[str] | None,
    typer.Option("--for", metavar="PROJECT", help="Only this project; may be repeated."),
]


def show(session: Session, pool: PoolOut) -> None:
    """Write one pool."""
    if session.output.as_json:
        session.output.document(pool)
    elif session.output.quiet:
        session.output.line(pool.name)
    else:
        session.output.facts(
            {
                "Name": pool.name,
                "Engine": pool.engine_label,
                "Open": pool.is_open,
                "Requests": f"{pool.requests} of {pool.most_requests}",
                "Waiting": pool.waiting,
                "Price": f"{pool.price_percent} % of the tier's price",
                "Projects": pool.projects if pool.projects is not None else "all",
                "Settings": [f"{name}={value}" for name, value in pool.settings.items()],
                "Problem": pool.problem or None,
            }
        )


@command(app, "list")
def list_pools(session: Session, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None) -> None:
    """List the pools."""
    show_list(
        session,
        collect(session.client.pools.list(), limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("Engine"),
            ListColumn("Open"),
            ListColumn("Requests"),
            ListColumn("Waiting"),
            ListColumn("Problem", fit=CellOverflow.WRAPPED, dispensable=1),
        ],
        row=lambda pool: (
            pool.name,
            pool.engine_label,
            pool.is_open,
            f"{pool.requests} of {pool.most_requests}",
            pool.waiting,
            pool.problem,
        ),
        key=lambda pool: pool.name,
        nothing="There is no pool. Work runs on the nodes of the installation.",
    )


@command(app, "show")
def show_pool(session: Session, pool: PoolArgument) -> None:
    """Show one pool."""
    show(session, session.client.pools.get(pool))


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Short name.")],
    engine: Annotated[str, typer.Option("--engine", help="Scheduler that allocates: local.")],
    setting: SettingOption = None,
    requests: RequestsOption = None,
    price_percent: PriceOption = None,
    only_for: ForOption = None,
) -> None:
    """Create a pool (administrators only)."""
    pool = session.client.pools.create(
        name,
        engine=engine,
        settings=parse_settings(setting),
        most_requests=requests,
        price_percent=price_percent,
        projects=only_for,
    )
    show(session, pool)


@command(app, "edit")
def edit(
    session: Session,
    pool: PoolArgument,
    setting: SettingOption = None,
    requests: RequestsOption = None,
    price_percent: PriceOption = None,
    only_for: ForOption = None,
    is_open: Annotated[
        bool | None,
        typer.Option("--open/--closed", help="Allow new work in the pool.", show_default=False),
    ] = None,
) -> None:
    """Change, close or open a pool (administrators only). Settings replace all earlier ones."""
    changed = session.client.pools.edit(
        pool,
        settings=parse_settings(setting),
        most_requests=requests,
        price_percent=price_percent,
        is_open=is_open,
        projects=only_for,
    )
    show(session, changed)


@command(app, "delete")
def delete(session: Session, pool: PoolArgument) -> None:
    """Remove a pool in which nothing waits or runs (administrators only)."""
    session.client.pools.delete(pool)
    if session.output.as_json:
        session.output.document({"deleted": pool})
    session.output.note(f"Removed pool {pool}.")


@command(app, "usage")
def usage(
    session: Session,
    pool: PoolArgument,
    window: Annotated[
        str, typer.Option("--window", help="today, 7d, month, or a month such as 2026-11.")
    ] = "month",
) -> None:
    """Compare the bill of a pool with the accounting of its engine (administrators only)."""
    row = session.client.pools.usage(pool, window=window)
    if session.output.as_json:
        session.output.document(row)
    elif session.output.quiet:
        session.output.line(str(row.difference_nano_usd))
    else:
        session.output.facts(
            {
                "Window": f"{row.window} (UTC)",
                "Ended": row.allocations,
                "Accounted by the engine": row.accounted,
                "Not accounted yet": row.pending,
                "Unknown to the engine": row.unknown,
                "Machine hours": _compared(row.billed_s, row.accounted_s),
                "CPU hours": _compared(row.billed_cpu_s, row.accounted_cpu_s),
                "Cost": f"{dollars(row.billed_nano_usd)} billed, "
                f"{dollars(row.accounted_nano_usd)} by the engine's time",
                "Difference": dollars(row.difference_nano_usd),
                "Billed without accounting": dollars(row.unaccounted_nano_usd),
            }
        )


def _compared(billed_s: float, accounted_s: int) -> str:
    return f"{billed_s / 3600:.2f} billed, {accounted_s / 3600:.2f} by the engine"


@command(app, "link")
def link(session: Session, pool: PoolArgument) -> None:
    """Link your own account in the system of a pool: prints the command that proves it."""
    account = session.client.pools.link(pool)
    if session.output.as_json:
        session.output.document(account)
        return
    note = "Run this within the hour as yourself, on a login node of the cluster:"
    if account.is_helper_running is not None:
        note = "Run this as yourself on a login node of the cluster, and leave it running:"
    session.output.note(note)
    session.output.line(account.command or "")


@command(app, "helper")
def helper(session: Session, pool: PoolArgument) -> None:
    """Run your own helper on a login node: it submits your jobs in a pool under your login.

    It connects to the server only, executes requests about your own jobs in this pool, and runs
    until you stop it. Jobs that run go on without it.
    """
    run_helper(session, pool)


@command(app, "account")
def account(session: Session, pool: PoolArgument) -> None:
    """Show your own account in the system of a pool."""
    row = session.client.pools.account(pool)
    if session.output.as_json:
        session.output.document(row)
    elif session.output.quiet:
        session.output.line(row.name or "")
    else:
        helper_state = None
        if row.is_helper_running is not None:
            helper_state = "running" if row.is_helper_running else "not running"
        session.output.facts(
            {
                "Pool": row.pool,
                "Account": row.name or "not linked",
                "Linked": row.linked_at,
                "Problem": row.problem or None,
                "Helper": helper_state,
                "Waits for": None if row.is_helper_running else row.command,
            }
        )


def parse_settings(pairs: list[str] | None) -> dict[str, Any] | None:
    """Parse NAME=VALUE, where VALUE may be JSON. Raises UsageMistake."""
    if pairs is None:
        return None
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise UsageMistake(
                f"--setting {pair!r} must have the form NAME=VALUE.",
                next_step="For example: --setting partition=gpu",
            )
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
    return settings
