"""Commands of `slipway job` that lead to its page, its dashboard, or into its tasks."""

from typing import Annotated

import typer

from slipway.cli.completion import complete_job
from slipway.cli.exits import UsageMistake
from slipway.cli.login import has_browser
from slipway.cli.project import ProjectOption
from slipway.cli.session import Session
from slipway.cli.shell import attach, check_platform
from slipway.schemas.dashboards import DashboardOut

JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="Id of the job.", autocompletion=complete_job),
]


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


def dashboard(session: Session, job: JobArgument, project: ProjectOption = None) -> None:
    """Open Ray's dashboard of a running job, and write its address for one browser."""
    slug = session.project(project)
    write_dashboard(session, session.client.jobs.open_dashboard(job, project=slug))


def write_dashboard(session: Session, opened: DashboardOut) -> None:
    """Write the address of a dashboard, and open it where there is a browser."""
    if session.output.as_json:
        session.output.document(opened)
        return
    session.output.line(opened.dashboard_url)
    session.output.note("This address opens it once, within a minute.")
    if has_browser() and not session.output.quiet:
        typer.launch(opened.dashboard_url)


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
