"""Rows, links and previews of workspace files. Names and contents of files are hostile."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.safestring import SafeString

from portal.core.markdown import render_markdown
from portal.notebooks.previews import NotebookPreview, preview_of
from portal.notebooks.services.workspace_places import Workspace
from portal.web.base.notebook_cells import CellView, cell_views, code_html
from slipway.schemas.workspace_files import WorkspaceEntry, WorkspaceFolder

MOST_PREVIEWED_BYTES = 8 * 1024**2
MOST_TEXT_BYTES = 1024**2
# By their first bytes, so that a browser cannot take one for something else.
_PICTURES = {
    b"\x89PNG\r\n\x1a\n": "png",
    b"\xff\xd8\xff": "jpeg",
    b"GIF87a": "gif",
    b"GIF89a": "gif",
}
_LANGUAGES = {
    "py": "python",
    "sh": "bash",
    "js": "js",
    "md": "markdown",
    "yml": "yaml",
    **{name: name for name in ("r", "sql", "json", "html", "css", "yaml", "toml", "c", "cpp")},
    **{name: name for name in ("java", "rust", "go", "xml", "diff")},
    "rs": "rust",
    "jl": "julia",
}


@dataclass(frozen=True)
class FolderLink:
    """A link with its text."""

    text: str
    url: str


@dataclass(frozen=True)
class FolderPicker:
    """Folders that an entry may be moved to: those above, and those below the shown one.

    `areas` leads to the tops of other areas. `fault` says why no folder can be shown.
    """

    areas: Sequence[FolderLink]
    trail: Sequence[FolderLink] = ()
    folders: Sequence[FolderLink] = ()
    is_cut: bool = False
    fault: str = ""


@dataclass(frozen=True)
class SortColumn:
    """The header of a sortable column. `sorted_by` is a value of aria-sort."""

    label: str
    url: str
    sorted_by: str
    classes: str

    @property
    def mark(self) -> str:
        """The arrow after the label."""
        return {"ascending": " ↑", "descending": " ↓"}.get(self.sorted_by, "")


@dataclass(frozen=True)
class EntryRow:
    """One entry of a folder. `query` names it in the links to its pages."""

    entry: WorkspaceEntry
    name: str
    query: str

    @property
    def icon(self) -> str:
        """Name of its icon."""
        return {"folder": "folder", "link": "external-link"}.get(self.entry.kind, "file")


@dataclass(frozen=True)
class WorkspacePreview:
    """Preview of a file. `fault` says why it shows nothing."""

    markdown: SafeString | None = None
    code: SafeString | None = None
    picture: str = ""
    notebook: NotebookPreview | None = None
    cells: Sequence[CellView] = ()
    fault: str = ""


def shown_name(name: str) -> str:
    """Return a name with its control characters and bytes that are not text made visible."""
    return "".join(
        c
        if c.isprintable()
        else f"\\x{ord(c) - 0xF700:02x}"
        if 0xF780 <= ord(c) < 0xF800
        else f"\\u{ord(c):04x}"
        for c in name
    )


def query_of(workspace: Workspace, path: str = "", **more: str) -> str:
    """Return the query that names a file or folder of a workspace."""
    values = {"area": workspace.area, "node": workspace.node.name, "path": path, **more}
    return urlencode({name: value for name, value in values.items() if value})


def folder_url(workspace: Workspace, path: str = "", **more: str) -> str:
    """Return the address of a folder's page."""
    page = reverse("project_workspace", args=[workspace.project.slug])
    return f"{page}?{query_of(workspace, path, **more)}"


def trail_of(workspace: Workspace, path: str) -> list[FolderLink]:
    """Return the folders above a path, topmost first, and the path's own."""
    top = "Personal" if workspace.area == "personal" else "Shared"
    trail = [FolderLink(top, folder_url(workspace))]
    parts = path.split("/") if path else []
    for count, part in enumerate(parts, start=1):
        trail.append(FolderLink(shown_name(part), folder_url(workspace, "/".join(parts[:count]))))
    return trail


def move_url(workspace: Workspace, path: str, area: str, folder: str) -> str:
    """Return the address of the form that moves `path` to a folder of an area."""
    page = reverse("project_workspace_move", args=[workspace.project.slug])
    return f"{page}?{query_of(workspace, path)}&{urlencode({'to_area': area, 'to': folder})}"


def picker_areas(workspace: Workspace, path: str, but: str = "") -> list[FolderLink]:
    """Return the links to the tops of the areas, without the area `but`."""
    return [
        FolderLink(text, move_url(workspace, path, area, ""))
        for text, area in (("Shared", "shared"), ("Personal", "personal"))
        if area != but
    ]


def picker_of(workspace: Workspace, path: str, area: str, folder: WorkspaceFolder) -> FolderPicker:
    """Return the folders around one that an entry could be moved to, without the entry itself."""
    top = "Personal" if area == "personal" else "Shared"
    trail = [FolderLink(top, move_url(workspace, path, area, ""))]
    parts = folder.path.split("/") if folder.path else []
    for count, part in enumerate(parts, start=1):
        above = "/".join(parts[:count])
        trail.append(FolderLink(shown_name(part), move_url(workspace, path, area, above)))
    folders = [
        FolderLink(shown_name(entry.name), move_url(workspace, path, area, entry.path))
        for entry in folder.entries
        if entry.kind == "folder" and (area, entry.path) != (workspace.area, path)
    ]
    return FolderPicker(
        areas=picker_areas(workspace, path, but=area),
        trail=trail,
        folders=folders,
        is_cut=bool(folder.entries)
        and folder.entries[-1].kind == "folder"  # they come first
        and folder.total > len(folder.entries),
    )


def rows_of(workspace: Workspace, folder: WorkspaceFolder) -> list[EntryRow]:
    """Return the rows of a folder."""
    return [
        EntryRow(entry, shown_name(entry.name), query_of(workspace, entry.path))
        for entry in folder.entries
    ]


def columns_of(workspace: Workspace, path: str, order: str, **more: str) -> list[SortColumn]:
    """Return the sortable headers of a folder."""
    columns = []
    for label, name, classes in (
        ("Name", "name", ""),
        ("Size", "size", "cell-number"),
        ("Changed", "modified", "hide-narrow"),
    ):
        following = f"-{name}" if order == name else name
        sorted_by = {name: "ascending", f"-{name}": "descending"}.get(order, "")
        url = folder_url(workspace, path, sort=following, **more)
        columns.append(SortColumn(label, url, sorted_by, classes))
    return columns


def preview_file(name: str, content: bytes) -> WorkspacePreview:
    """Return what a page shows of a file."""
    ending = name.rpartition(".")[2].lower()
    picture = _picture_kind(content)
    if picture:
        data = base64.b64encode(content).decode()
        return WorkspacePreview(picture=f"data:image/{picture};base64,{data}")
    if ending == "ipynb":
        notebook = preview_of(content)
        if notebook is not None:
            return WorkspacePreview(notebook=notebook, cells=cell_views(notebook))
    if len(content) > MOST_TEXT_BYTES:
        return WorkspacePreview(fault="It is too large to show as text. Download it.")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return WorkspacePreview(fault="It is no text in UTF-8 and no picture. Download it.")
    if "\0" in text:
        return WorkspacePreview(fault="It is no text. Download it.")
    if ending in ("md", "markdown"):
        return WorkspacePreview(markdown=render_markdown(text))
    return WorkspacePreview(code=code_html(text, _LANGUAGES.get(ending, "")))


def _picture_kind(content: bytes) -> str:
    for magic, kind in _PICTURES.items():
        if content.startswith(magic):
            return kind
    return "webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else ""
