"""`slipway notebook start | list | show | edit | open | stop | delete`: notebook servers."""

import time
from pathlib import Path
from typing import Annotated, Final

import typer

from slipway.cli.completion import complete_pool
from slipway.cli.environment_option import EnvironmentOption
from slipway.cli.exits import ExitCode, UsageMistake
from slipway.cli.job_access import write_dashboard
from slipway.cli.login import has_browser
from slipway.cli.notebook_files import delete_notebook
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.quantities import parse_pairs
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.train import PoolOption
from slipway.errors import NotFound
from slipway.schemas.money import dollars
from slipway.schemas.notebook_servers import NotebookState, ServerOut

ServerArgument = Annotated[
    str, typer.Argument(metavar="NOTEBOOK", help="Name of your server, or an id.")
]
WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until it is ready (on by default).")
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open JupyterLab in the browser.")]
DailyStart = Annotated[
    str | None,
    typer.Option("--daily-start", metavar="HH:MM", help="Daily start time, in UTC."),
]
DailyStop = Annotated[
    str | None,
    typer.Option("--daily-stop", metavar="HH:MM", help="Daily stop time, in UTC."),
]
DaysOption = Annotated[
    str | None,
    typer.Option("--days", metavar="DAYS", help="Days of the schedule (mon,tue,wed,thu,fri)."),
]
_LOOK_EVERY_S: Final = 0.5
_OVER: Final = (NotebookState.STOPPED, NotebookState.FAILED)


def register(app: typer.Typer) -> None:
    """Add the commands for servers to the group."""
    command(app, "start")(start)
    command(app, "list")(list_servers)
    command(app, "show")(show)
    command(app, "edit")(edit)
    command(app, "open")(open_server)
    command(app, "dashboard")(dashboard)
    command(app, "stop")(stop)
    command(app, "delete")(delete)


def start(
    session: Session,
    notebook: Annotated[
        str,
        typer.Argument(
            metavar="NOTEBOOK", help="Name of the server. A stopped server starts again."
        ),
    ] = "notebook",
    tier: Annotated[
        str | None, typer.Option("--tier", help="Hardware of a new server. Default: the cheapest.")
    ] = None,
    pool: PoolOption = None,
    framework: Annotated[
        str | None,
        typer.Option(
            "--framework", metavar="[ray]", help="Start a cluster of it beside the server."
        ),
    ] = None,
    requirements: Annotated[
        Path | None,
        typer.Option("--requirements", "-r", help="Requirements file with packages to install."),
    ] = None,
    environment: EnvironmentOption = None,
    idle: Annotated[
        int | None, typer.Option("--idle", min=5, help="Idle minutes before it stops (60).")
    ] = None,
    max_hours: Annotated[
        float | None, typer.Option("--max-hours", min=0.01, help="Hours before it stops.")
    ] = None,
    daily_start: DailyStart = None,
    daily_stop: DailyStop = None,
    days: DaysOption = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="NAME=VALUE", help="Tag for cost reports.")
    ] = None,
    project: ProjectOption = None,
    wait: WaitOption = True,
    open_it: OpenOption = False,
) -> None:
    """Launch a notebook server, or start one of yours again."""
    place, notebooks = session.project(project), session.client.notebooks
    known = _find_server(session, notebook, place)
    given = (
        *(tier, pool, framework, requirements, environment, idle, max_hours),
        *(daily_start, daily_stop, days, tag),
    )
    if known is not None:
        _require_none(notebook, given)
        made = notebooks.start(known.id, project=place)
    else:
        made = notebooks.launch(
            notebook,
            project=place,
            tier=tier,
            pool=pool,
            framework=framework,
            requirements=_text_of(requirements),
            environment=environment,
            idle_minutes=idle,
            max_hours=max_hours,
            daily_start=daily_start,
            daily_stop=daily_stop,
            days=days.split(",") if days else None,
            tags=parse_pairs(tag, option="--tag") if tag else None,
        )
    if wait:
        made = _wait_until_settled(session, made, place)
    _write(session, made)
    if open_it and made.state not in _OVER:
        _open(session, made, place)
    if made.state == NotebookState.FAILED:
        raise typer.Exit(ExitCode.JOB_FAILED)


def list_servers(
    session: Session,
    project: ProjectOption = None,
    matches: Annotated[bool, typer.Option("--mine", help="Only your servers.")] = False,
    state: Annotated[
        NotebookState | None, typer.Option("--state", metavar="STATE", help="Only in this state.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the notebook servers of a project, newest first."""
    pages = session.client.notebooks.list(
        project=session.project(project), state=state.value if state else None, mine=matches
    )
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Name", style="bold"),
            ListColumn("State"),
            ListColumn("Why", fit=CellOverflow.WRAPPED),
            ListColumn("Whose", dispensable=2),
            ListColumn("Tier", dispensable=1),
            ListColumn("An hour"),
            ListColumn("Cost"),
        ],
        row=lambda server: (
            server.name,
            server.state.value,
            server.why_alive or server.explanation,
            server.owner,
            server.tier,
            dollars(server.nano_usd_per_hour),
            dollars(server.cost_nano_usd),
        ),
        key=lambda item: item.id,
        nothing="There is no notebook server yet. Launch one: slipway notebook start",
    )


def show(session: Session, notebook: ServerArgument, project: ProjectOption = None) -> None:
    """Show a notebook server: state, reason it runs, savings when stopped."""
    _write(session, _get_server(session, notebook, session.project(project)))


def edit(
    session: Session,
    notebook: ServerArgument,
    tier: Annotated[
        str | None, typer.Option("--tier", help="New hardware, only while stopped.")
    ] = None,
    pool: Annotated[
        str | None,
        typer.Option(
            "--pool",
            help="New pool, only while stopped; '' for the nodes of the installation.",
            autocompletion=complete_pool,
        ),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(
            "--environment",
            "-e",
            metavar="ENVIRONMENT",
            help="New environment, such as vision or vision@3, only while stopped.",
        ),
    ] = None,
    idle: Annotated[
        int | None, typer.Option("--idle", min=5, help="Idle minutes before it stops.")
    ] = None,
    max_hours: Annotated[
        float | None,
        typer.Option("--max-hours", min=0, help="Hours before it stops, 0 for no limit."),
    ] = None,
    daily_start: DailyStart = None,
    daily_stop: DailyStop = None,
    days: DaysOption = None,
    unscheduled: Annotated[
        bool, typer.Option("--unscheduled", help="Remove the schedule.")
    ] = False,
    project: ProjectOption = None,
) -> None:
    """Change your server. Stop it first to change its tier, pool, environment or time limit."""
    if unscheduled and (daily_start or daily_stop):
        raise UsageMistake(
            "--unscheduled excludes the options of a schedule.",
            field="unscheduled",
            next_step="Leave out --unscheduled, or --daily-start and --daily-stop.",
        )
    place = session.project(project)
    changed = session.client.notebooks.edit(
        _get_server(session, notebook, place).id,
        project=place,
        tier=tier,
        pool=pool,
        environment=environment,
        idle_minutes=idle,
        max_hours=max_hours,
        daily_start="" if unscheduled else daily_start,
        daily_stop="" if unscheduled else daily_stop,
        days=days.split(",") if days else None,
    )
    _write(session, changed)


def open_server(session: Session, notebook: ServerArgument, project: ProjectOption = None) -> None:
    """Open JupyterLab in the browser, starting the server if it is stopped."""
    place = session.project(project)
    server = _get_server(session, notebook, place)
    if server.state in _OVER:
        server = session.client.notebooks.start(server.id, project=place)
    if session.output.as_json:
        session.output.document(server)
    _open(session, server, place)


def stop(session: Session, notebook: ServerArgument, project: ProjectOption = None) -> None:
    """Stop a notebook server. Its files remain. Maintainers stop other people's servers by id."""
    place = session.project(project)
    server = _get_server(session, notebook, place)
    _write(session, session.client.notebooks.stop(server.id, project=place))


def delete(
    session: Session,
    notebook: Annotated[
        str,
        typer.Argument(
            metavar="NOTEBOOK", help="Name of your server, an id, or the path of a notebook."
        ),
    ],
    project: ProjectOption = None,
    yes: Yes = False,
) -> None:
    """Delete a stopped server (its files remain), or a notebook (NAME.ipynb).

    The deletion of a notebook can be undone for three days.
    """
    place = session.project(project)
    if notebook.endswith(".ipynb"):
        delete_notebook(session, notebook, place, yes=yes)
        return
    server = _get_server(session, notebook, place)
    confirm(f"Delete the server {server.name}? Its files remain.", yes=yes, output=session.output)
    session.client.notebooks.delete(server.id, project=place)
    session.output.note(f"Deleted {server.name}.")


def _find_server(session: Session, notebook: str, project: str) -> ServerOut | None:
    """Return the user's own server of that name, or the server with that id."""
    if notebook.startswith("nbs_"):
        return session.client.notebooks.get(notebook, project=project)
    pages = session.client.notebooks.list(project=project, mine=True)
    return next((server for server in pages if server.name == notebook), None)


def _get_server(session: Session, notebook: str, project: str) -> ServerOut:
    server = _find_server(session, notebook, project)
    if server is None:
        raise NotFound(
            f"You have no notebook server called {notebook} in {project}.",
            code="not_found",
            next_step="See the servers of the project: slipway notebook list",
        )
    return server


def _wait_until_settled(session: Session, server: ServerOut, project: str) -> ServerOut:
    """Wait until the server is ready or final, and print each step once."""
    explanation = ""
    while server.state not in (NotebookState.READY, NotebookState.STOPPING, *_OVER):
        if server.explanation != explanation:
            explanation = server.explanation
            session.output.note(explanation)
        time.sleep(_LOOK_EVERY_S)
        server = session.client.notebooks.get(server.id, project=project)
    return server


def _open(session: Session, server: ServerOut, project: str) -> None:
    page = session.client.notebooks.page(server.id, project=project)
    if has_browser():
        typer.launch(page)
    if not session.output.as_json:
        session.output.note(f"JupyterLab opens at {page}")


def dashboard(session: Session, notebook: ServerArgument, project: ProjectOption = None) -> None:
    """Open Ray's dashboard beside a notebook server, and write its address for one browser."""
    place = session.project(project)
    server = _get_server(session, notebook, place)
    write_dashboard(session, session.client.notebooks.open_dashboard(server.id, project=place))


def _require_none(notebook: str, given: tuple[object, ...]) -> None:
    """Refuse options that would change an existing server."""
    if any(option is not None for option in given):
        raise UsageMistake(
            f"{notebook} already exists, so its hardware and limits do not change.",
            next_step="Leave the options out, or change the server: "
            f"slipway notebook edit {notebook}. Or launch one with another name.",
        )


def _text_of(requirements: Path | None) -> str | None:
    if requirements is None:
        return None
    try:
        return requirements.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageMistake(
            f"{requirements} cannot be read.",
            field="requirements",
            next_step="Name a text file with one package a line.",
        ) from error


def _write(session: Session, server: ServerOut) -> None:
    if session.output.as_json:
        session.output.document(server)
        return
    if session.output.quiet:
        session.output.line(server.id)
        return
    runs = server.state not in _OVER
    session.output.facts(
        {
            "Id": server.id,
            "Name": server.name,
            "State": server.state.value,
            "Why": server.explanation,
            "Running because": server.why_alive,
            "Next step": server.next_step,
            "Stops at": server.stops_at,
            "Stops when idle for": f"{server.idle_minutes_in_force:g} minutes",
            "Every day": _schedule_of(server),
            "Whose": server.owner,
            "Pool": server.pool,
            "Tier": server.tier,
            "Network": server.network,
            "Price" if not runs else "Stopping saves": (
                f"{dollars(server.nano_usd_per_hour)} an hour"
            ),
            "Cost": dollars(server.cost_nano_usd),
            "Last activity": server.active_at,
            "Page": session.client.notebooks.page(server.id, project=server.project),
        }
    )


def _schedule_of(server: ServerOut) -> str:
    moments = (("starts", server.daily_start), ("stops", server.daily_stop))
    join = " and ".join(f"{verb} at {at} UTC" for verb, at in moments if at)
    return f"{join}: {', '.join(server.days)}" if join else ""
