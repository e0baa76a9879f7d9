"""`slipway report`: list, show, write, version, share and export reports."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.pagination import DEFAULT_LIMIT, Cursor, Limit, collect, show_list
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.transfer import receive_file
from slipway.schemas.reports import ExportFormat, ReportDetail

app = typer.Typer(
    no_args_is_help=True,
    help="Reports: list, show, create, edit, versions, share, export.",
)
ReportArgument = Annotated[str, typer.Argument(metavar="REPORT", help="Id of the report.")]
NumberArgument = Annotated[
    int, typer.Argument(metavar="NUMBER", min=1, help="Number of the version.")
]
FileOption = Annotated[
    Path,
    typer.Option(
        "--file", metavar="FILE", help='JSON: {"title": "…", "blocks": […]}, as `show --json`.'
    ),
]


def _content(file: Path) -> tuple[str, list[dict[str, Any]]]:
    """Return title and blocks of a file. Raises UsageMistake."""
    try:
        content = json.loads(file.expanduser().read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not JSON in UTF-8"
        raise UsageMistake(
            f"{file} cannot be read: {reason}.",
            field="file",
            next_step="Start from an existing report: slipway report show REPORT --json.",
        ) from error
    title = content.get("title") if isinstance(content, dict) else None
    blocks = content.get("blocks", []) if isinstance(content, dict) else None
    if not isinstance(title, str) or not isinstance(blocks, list):
        raise UsageMistake(
            f"{file} has no title, or its blocks are no list.",
            field="file",
            next_step='Write {"title": "…", "blocks": [{"kind": "text", "text": "…"}]}.',
        )
    return title, blocks


def _show(session: Session, report: ReportDetail) -> None:
    if session.output.as_json:
        session.output.document(report)
    elif session.output.quiet:
        session.output.line(report.id)
    else:
        session.output.facts(
            {
                "Title": report.title,
                "Version": report.version,
                "Saved": report.saved_at,
                "By": report.saved_by.name,
                "Blocks": ", ".join(str(block.get("kind")) for block in report.blocks) or None,
                "Share link since": report.shared_at,
                "Id": report.id,
            }
        )


@command(app, "list")
def list_reports(
    session: Session,
    project: ProjectOption = None,
    search: Annotated[
        str | None, typer.Option("--search", "-s", help="Only titles that contain this text.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the reports of a project, newest first."""
    pages = session.client.reports.list(project=session.project(project), search=search)
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Id"),
            ListColumn("Title", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("Version", dispensable=2),
            ListColumn("Saved", dispensable=1),
            ListColumn("By", fit=CellOverflow.WRAPPED, dispensable=3),
        ],
        row=lambda r: (r.id, r.title, r.version, r.saved_at, r.saved_by.name),
        key=lambda r: r.id,
        nothing="No report was found.",
    )


@command(app, "show")
def show_report(session: Session, report: ReportArgument, project: ProjectOption = None) -> None:
    """Show a report. With --json, with its blocks."""
    _show(session, session.client.reports.get(report, project=session.project(project)))


@command(app, "create")
def create(session: Session, file: FileOption, project: ProjectOption = None) -> None:
    """Create a report from a JSON file."""
    title, blocks = _content(file)
    slug = session.project(project)
    report = session.client.reports.create(title, blocks, project=slug)
    _show(session, report)
    session.output.note(session.client.reports.page(report.id, project=slug))


@command(app, "edit")
def edit(
    session: Session,
    report: ReportArgument,
    file: FileOption,
    version: Annotated[
        int | None,
        typer.Option(
            "--version",
            min=1,
            help="Version that the file was edited from. Default: the current one. If somebody "
            "saved another one meanwhile, nothing is saved.",
        ),
    ] = None,
    project: ProjectOption = None,
) -> None:
    """Save a JSON file as the new version of a report."""
    title, blocks = _content(file)
    slug, reports = session.project(project), session.client.reports
    edited_from = version or reports.get(report, project=slug).version
    _show(session, reports.update(report, title, blocks, version=edited_from, project=slug))


@command(app, "versions")
def versions(
    session: Session,
    report: ReportArgument,
    project: ProjectOption = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> None:
    """List the versions of a report, newest first."""
    pages = session.client.reports.versions(report, project=session.project(project))
    show_list(
        session,
        collect(pages, limit=limit, cursor=cursor),
        columns=[
            ListColumn("Version"),
            ListColumn("Title", fit=CellOverflow.WRAPPED, style="bold"),
            ListColumn("Saved"),
            ListColumn("By", fit=CellOverflow.WRAPPED, dispensable=1),
        ],
        row=lambda v: (v.number, v.title, v.saved_at, v.saved_by.name),
        key=lambda v: str(v.number),
        nothing="No version was found.",
    )


@command(app, "restore")
def restore(
    session: Session, report: ReportArgument, number: NumberArgument, project: ProjectOption = None
) -> None:
    """Save the content of an earlier version as the newest one."""
    slug, reports = session.project(project), session.client.reports
    version = reports.get(report, project=slug).version
    _show(session, reports.restore(report, number, version=version, project=slug))


@command(app, "delete")
def delete(
    session: Session, report: ReportArgument, project: ProjectOption = None, yes: Yes = False
) -> None:
    """Delete a report with all its versions. Objects in it stay."""
    slug, reports = session.project(project), session.client.reports
    title = reports.get(report, project=slug).title
    confirm(f"Delete the report {title} with all its versions?", yes=yes, output=session.output)
    reports.delete(report, project=slug)
    if session.output.as_json:
        session.output.document({"deleted": report})
    session.output.note(f"Deleted the report {title}.")


@command(app, "share")
def share(session: Session, report: ReportArgument, project: ProjectOption = None) -> None:
    """Create or replace the share link. Everybody signed in to the installation can use it."""
    shared = session.client.reports.share(report, project=session.project(project))
    if session.output.as_json:
        session.output.document(shared)
        return
    session.output.line(shared.link)
    session.output.note("The link is shown only once. Turn it off: slipway report unshare REPORT")


@command(app, "unshare")
def unshare(session: Session, report: ReportArgument, project: ProjectOption = None) -> None:
    """Turn the share link off."""
    session.client.reports.unshare(report, project=session.project(project))
    if session.output.as_json:
        session.output.document({"unshared": report})
    session.output.note("The share link no longer works.")


@command(app, "export")
def export(
    session: Session,
    report: ReportArgument,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Output file.")],
    pdf: Annotated[bool, typer.Option("--pdf", help="PDF instead of HTML.")] = False,
    yes: Yes = False,
    project: ProjectOption = None,
) -> None:
    """Export a report as one file of HTML or PDF, with its objects as they are now."""
    file_format: ExportFormat = "pdf" if pdf or output.suffix.lower() == ".pdf" else "html"
    if output.exists():
        confirm(f"Replace the file {output}?", yes=yes, output=session.output)
    slug = session.project(project)
    with session.client.reports.export(report, project=slug, format=file_format) as content:
        size = receive_file(session, content, output, label="Receiving")
    if session.output.as_json:
        session.output.document({"path": str(output), "size_bytes": size})
    elif session.output.quiet:
        session.output.line(str(output))
    session.output.note(f"{output}: {size:,} bytes.")
