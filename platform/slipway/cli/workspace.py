"""`slipway workspace`: files of notebook workspaces."""

from pathlib import Path
from typing import Annotated

import typer

from slipway.cli.exits import UsageMistake
from slipway.cli.project import ProjectOption, Yes
from slipway.cli.prompts import confirm
from slipway.cli.session import Session, command
from slipway.cli.tables import CellOverflow, ListColumn
from slipway.cli.transfer import progress_bar, receive_file
from slipway.schemas.workspace_files import WorkspaceArea, WorkspaceEntry, WorkspaceNode

app = typer.Typer(
    no_args_is_help=True, help="Files of notebook workspaces: ls, get, put, upload, mkdir, mv, rm."
)
PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="Path of a file or folder in the workspace.")
]
FolderArgument = Annotated[
    str, typer.Argument(metavar="[FOLDER]", help="Folder in the workspace. Default: its top.")
]
Personal = Annotated[
    bool, typer.Option("--personal", help="Your personal folder, not the shared workspace.")
]
NodeOption = Annotated[
    str,
    typer.Option("--node", help="Node with the files. Default: that of the newest server."),
]
Hidden = Annotated[bool, typer.Option("--hidden", help="Include names that begin with a dot.")]


def _area(personal: bool) -> WorkspaceArea:
    return "personal" if personal else "shared"


@command(app, "ls")
def ls(
    session: Session,
    folder: FolderArgument = "",
    personal: Personal = False,
    hidden: Hidden = False,
    offset: Annotated[int, typer.Option("--offset", min=0, help="Entries to skip.")] = 0,
    node: NodeOption = "",
    project: ProjectOption = None,
) -> None:
    """List a folder, at most 500 entries at once."""
    listed = session.client.workspaces.list(
        folder,
        project=session.project(project),
        area=_area(personal),
        node=node,
        hidden=hidden,
        offset=offset,
    )
    output = session.output
    if output.as_json:
        output.document(listed)
        return
    if output.quiet:
        for entry in listed.entries:
            output.line(entry.path)
        return
    columns = [
        ListColumn("Name", style="bold", fit=CellOverflow.WRAPPED),
        ListColumn("Kind", dispensable=2),
        ListColumn("Bytes"),
        ListColumn("Changed", dispensable=1),
    ]
    rows = [
        (
            *(_shown(entry), entry.kind),
            *(None if entry.kind == "folder" else entry.size_bytes, entry.modified_at),
        )
        for entry in listed.entries
    ]
    output.table(columns, rows)
    if not listed.entries:
        output.note(f"This folder of the node {listed.node} is empty.")
    if len(listed.nodes) > 1:
        others = [_node(node) for node in listed.nodes if node.name != listed.node]
        output.note(f"These files are on {listed.node}. Choose with --node: {', '.join(others)}.")
    following = listed.offset + len(listed.entries)
    if following < listed.total:
        output.note(f"There are more: continue with --offset {following}")


def _node(node: WorkspaceNode) -> str:
    if node.is_reachable:
        return node.name
    since = f" since {node.away_since:%Y-%m-%d %H:%M} UTC" if node.away_since else ""
    return f"{node.name} (away{since})"


def _shown(entry: WorkspaceEntry) -> str:
    return f"{entry.name}/" if entry.kind == "folder" else entry.name


@command(app, "get")
def get(
    session: Session,
    path: PathArgument,
    to: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write. Default: its name.")
    ] = None,
    personal: Personal = False,
    hidden: Hidden = False,
    node: NodeOption = "",
    project: ProjectOption = None,
) -> None:
    """Download a file, or a folder as a zip."""
    slug = session.project(project)
    with session.client.workspaces.download(
        path, project=slug, area=_area(personal), node=node, hidden=hidden
    ) as content:
        name = path.strip("/").rpartition("/")[2]
        is_folder = content.header("content-type") == "application/zip"
        target = to or Path(f"{name}.zip" if is_folder else name)
        if to is None and target.exists():
            raise UsageMistake(
                f"{target} exists already.",
                field="output",
                next_step="Choose another file with --output.",
            )
        size = receive_file(session, content, target, label=name)
    if session.output.as_json:
        session.output.document({"path": str(target), "size_bytes": size})
    else:
        session.output.line(str(target))


@command(app, "put")
def put(
    session: Session,
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Files on this machine.")],
    to: Annotated[
        str, typer.Option("--to", metavar="FOLDER", help="Folder in the workspace.")
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
    personal: Personal = False,
    node: NodeOption = "",
    project: ProjectOption = None,
) -> None:
    """Upload files to a folder of the workspace."""
    slug = session.project(project)
    for file in files:
        total = file.stat().st_size if file.is_file() else None
        folder = to.strip("/")
        with progress_bar(session, file.name, total_bytes=total) as bar:
            entry = session.client.workspaces.upload(
                file,
                f"{folder}/{file.name}" if folder else file.name,
                project=slug,
                area=_area(personal),
                node=node,
                replace=replace,
                progress=bar.show,
            )
        _report(session, entry, f"{entry.path} is in the workspace.")


@command(app, "upload")
def upload(
    session: Session,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder on this machine.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="PARENT", help="Folder of the workspace to put it in."),
    ] = "",
    replace: Annotated[bool, typer.Option("--replace", help="Replace existing files.")] = False,
    hidden: Hidden = False,
    personal: Personal = False,
    node: NodeOption = "",
    project: ProjectOption = None,
) -> None:
    """Upload a folder with all that is in it, and list what is left out."""
    slug, name, parent = session.project(project), folder.absolute().name, to.strip("/")
    output = session.output
    with progress_bar(session, name, total_bytes=None) as bar:
        result = session.client.workspaces.upload_folder(
            folder,
            f"{parent}/{name}" if parent else name,
            project=slug,
            area=_area(personal),
            node=node,
            replace=replace,
            hidden=hidden,
            progress=bar.show_file,
        )
    if output.as_json:
        output.document(
            {
                "uploaded": [entry.path for entry in result.uploaded],
                "left_out": [vars(entry) for entry in result.left_out],
            }
        )
        return
    for entry in result.uploaded:
        output.line(entry.path)
    count = len(result.left_out)
    output.note(f"{len(result.uploaded)} files are in the workspace; {count} are left out.")
    for left_out in result.left_out:
        output.note(f"  {left_out.path}: {left_out.reason}")


@command(app, "mkdir")
def mkdir(
    session: Session,
    path: PathArgument,
    personal: Personal = False,
    node: NodeOption = "",
    project: ProjectOption = None,
) -> None:
    """Create a folder."""
    slug = session.project(project)
    entry = session.client.workspaces.make_folder(
        path, project=slug, area=_area(personal), node=node
    )
    _report(session, entry, f"{entry.path}/ is created.")


@command(app, "mv")
def mv(
    session: Session,
    path: PathArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="New path.")],
    personal: Personal = False,
    to_personal: Annotated[
        bool | None,
        typer.Option("--to-personal/--to-shared", help="Area of TARGET. Default: that of PATH."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing file.")] = False,
    node: NodeOption = "",
    project: ProjectOption = None,
) -> None:
    """Rename or move a file or folder, also between the shared and your personal folder."""
    slug = session.project(project)
    entry = session.client.workspaces.move(
        path,
        target,
        project=slug,
        area=_area(personal),
        target_area=None if to_personal is None else _area(to_personal),
        node=node,
        replace=replace,
    )
    _report(session, entry, f"It is {entry.path} now.")


@command(app, "rm")
def rm(
    session: Session,
    path: PathArgument,
    personal: Personal = False,
    node: NodeOption = "",
    yes: Yes = False,
    project: ProjectOption = None,
) -> None:
    """Delete a file, or a folder with all that is in it."""
    slug = session.project(project)
    question = f"Delete {path} from the workspace? It cannot be undone."
    confirm(question, yes=yes, output=session.output)
    session.client.workspaces.delete(path, project=slug, area=_area(personal), node=node)
    if session.output.as_json:
        session.output.document({"deleted": path})
    session.output.note(f"Deleted {path}.")


def _report(session: Session, entry: WorkspaceEntry, message: str) -> None:
    if session.output.as_json:
        session.output.document(entry)
    else:
        session.output.line(entry.path if session.output.quiet else message)
