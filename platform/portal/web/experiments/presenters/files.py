"""Artifacts on pages: the open folder, and a preview of the chosen file.

Nothing of a file ever becomes part of a page as it is: text is escaped, tables and notebooks are
drawn anew, pictures and HTML come by a signed link of a few minutes, into an <img> or a frame
without an origin.
"""

import csv
import io
import json
import re
from dataclasses import dataclass, field
from typing import Any

from django.http import HttpRequest
from django.utils.safestring import mark_safe

from portal.accounts.models import Project
from portal.core.errors import NotFound, SlipwayError
from portal.core.markdown import render_markdown
from portal.datasets.table_process import TableUnreadable, preview_parquet
from portal.experiments.ports import Artifact, RunDetail
from portal.experiments.results.charts import ChartRefused, parse_chart
from portal.experiments.results.highlighter import LEXERS, highlighted
from portal.experiments.results.images import (
    HEADER_BYTES,
    RASTER_TYPES,
    ImageRefused,
    checked_image,
)
from portal.experiments.services.artifacts import artifact_of, artifacts_of, read_artifact
from portal.experiments.services.inspection import InspectionRefused, inspect_artifacts
from portal.experiments.services.results import CHARTS, tables_tagged
from portal.web.experiments.presenters.media import (
    AUDIO_TYPES,
    MEDIA_TYPES,
    PAGES,
    PICTURES,
    media_url,
    signed_url,
)
from portal.web.experiments.presenters.tables import LoggedTable, logged_table
from slipway.schemas.truncation import shorten

MOST_ENTRIES = 1_000
PREVIEW_BYTES = 256 * 1024
TABLE_ROWS, TABLE_COLUMNS = 100, 50
MOST_CELLS = 200
MOST_CHARACTERS = 20_000
HIGHLIGHTED_BYTES = 64 * 1024
_HIGHLIGHTED_WITHIN_S = 20.0
_MARKDOWN = frozenset({"md", "markdown"})
_FIGURE = re.compile(r'\s*\{\s*"data"\s*:\s*\[\s*\{\s*"')
_TAIL_BYTES = 64 * 1024
# The first bytes of what pandas writes in the orientation `split`.
_SPLIT_BYTES = 4096
_SPLIT = re.compile(rb'\s*\{\s*"columns"\s*:\s*\[')
_TABLES = {"csv": ",", "tsv": "\t"}
_PARQUET = "parquet"
MOST_PARQUET_BYTES = 64 * 1024**2
_TEXTS = frozenset(
    {
        *(
            "txt",
            "log",
            "md",
            "markdown",
            "json",
            "yaml",
            "yml",
            "py",
            "toml",
            "cfg",
            "ini",
            "sh",
            "xml",
        ),
        *("mlmodel", "jsonl", "rst", "sql", "js", "css", "r", "c", "h", "cpp"),
    }
)


@dataclass
class FilePreview:
    """Preview of a file. `kind` is picture, page, audio, video, table, logged table, chart,
    notebook, markdown, text or none. `html` is safe.

    `head` has each column of a table with its type, where the file has types. `left_out` describes
    the part of the file that is not shown.
    """

    artifact: Artifact
    kind: str
    url: str = ""
    text: str = ""
    left_out: str = ""
    head: list[tuple[str, str]] = field(default_factory=list)
    lines: list[list[str | None]] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    html: str = ""
    chart: dict[str, Any] | None = None
    logged_table: LoggedTable | None = None


def artifacts_context(request: HttpRequest, project: Project, run: RunDetail) -> dict[str, Any]:
    """Return the folder that `path` names, or the file's preview with the folder it is in."""
    path = request.GET.get("path", "").strip("/")
    values: dict[str, Any] = {"path": path, "crumbs": [], "preview": None, "artifacts_fault": ""}
    most = MOST_ENTRIES + 1
    try:
        entries = artifacts_of(project_id=project.pk, run=run, path=path, most=most)
        if path and not entries:
            artifact = artifact_of(project_id=project.pk, run=run, path=path)
            values["preview"] = preview_of(request, project, run, artifact)
            path = path.rpartition("/")[0]
            entries = artifacts_of(project_id=project.pk, run=run, path=path, most=most)
    except NotFound:
        values["artifacts_fault"] = "This artifact no longer exists."
        entries = artifacts_of(project_id=project.pk, run=run, most=most)
        path = ""
    except SlipwayError as error:
        values["artifacts_fault"] = " ".join(filter(None, (error.message, error.next_step)))
        entries = []
    parts = [part for part in path.split("/") if part]
    values["crumbs"] = [(part, "/".join(parts[: at + 1])) for at, part in enumerate(parts)]
    shown = entries[:MOST_ENTRIES]
    return values | {"entries": shown, "most_entries": MOST_ENTRIES * (len(shown) < len(entries))}


def preview_of(
    request: HttpRequest, project: Project, run: RunDetail, artifact: Artifact
) -> FilePreview:
    """Return what can be shown of a file."""
    ending = artifact.name.rpartition(".")[2].lower()
    preview = FilePreview(artifact, "none")
    if ending in PICTURES or ending in PAGES or ending in MEDIA_TYPES:
        return _media(preview, request, project, run, ending)
    if ending == _PARQUET:
        return _parquet(preview, project, run)
    if ending not in {*_TABLES, *_TEXTS, "ipynb"} and artifact.name != "MLmodel":
        preview.reason = "No preview for this file type; download it."
        return preview
    if ending == "ipynb":
        limit = 4 * PREVIEW_BYTES
        if artifact.size_bytes > limit:
            preview.reason = "This notebook is too large to show here; download it."
            return preview
        return _notebook(preview, _bytes(project, run, artifact, limit))
    if ending == "json" and _is_table(project, run, artifact):
        return _logged_table(preview, request, project, run)
    content = _bytes(project, run, artifact, PREVIEW_BYTES).decode(errors="replace")
    if ending in _TABLES:
        return _table(preview, content, _TABLES[ending])
    preview.kind, preview.text, preview.left_out = "text", content, _unread(artifact)
    if ending == "json" and _is_figure(project, run, artifact, content):
        preview.kind, preview.left_out = "page", ""
        preview.url = f"{signed_url(request, project, run, artifact)}&as=figure"
        return preview
    return _text(preview, project, run, ending)


def _logged_table(
    preview: FilePreview, request: HttpRequest, project: Project, run: RunDetail
) -> FilePreview:
    try:
        preview.logged_table = logged_table(
            request, project=project, run=run, artifact=preview.artifact
        )
        preview.kind = "logged table"
    except InspectionRefused as refused:
        preview.reason = str(refused)
    return preview


def _media(
    preview: FilePreview, request: HttpRequest, project: Project, run: RunDetail, ending: str
) -> FilePreview:
    """Show an image, sound, film or HTML page from an address of its own."""
    if ending in RASTER_TYPES:
        return _picture(preview, project, run)
    if ending in MEDIA_TYPES:
        preview.kind = "audio" if ending in AUDIO_TYPES else "video"
        preview.url = media_url(project.slug, run.facts.id, preview.artifact.path)
        return preview
    preview.kind = "page" if ending in PAGES else "picture"
    preview.url = signed_url(request, project, run, preview.artifact)
    return preview


def _text(preview: FilePreview, project: Project, run: RunDetail, ending: str) -> FilePreview:
    """Show a text as what it is: Markdown, a chart, or code."""
    if ending in _MARKDOWN:
        preview.kind, preview.html = "markdown", render_markdown(preview.text)
    elif ending == "json" and preview.artifact.path.startswith(f"{CHARTS}/"):
        _chart(preview, preview.text)
    lexer = LEXERS.get(ending)
    if preview.kind == "text" and lexer and preview.artifact.size_bytes <= HIGHLIGHTED_BYTES:
        _highlight(preview, project, run, lexer)
    return preview


def _chart(preview: FilePreview, content: str) -> None:
    try:
        chart = parse_chart(content.encode())
    except ChartRefused as refused:
        preview.left_out = f"Not drawn as a chart: {refused}"
        return
    name = preview.artifact.path
    preview.kind, preview.chart = "chart", {"name": name, "steps": [chart | {"step": None}]}


def _highlight(preview: FilePreview, project: Project, run: RunDetail, lexer: str) -> None:
    """Colour a text in a process that ends in time, and leave it plain if that fails."""
    if lexer == "json":  # this lexer has no regular expressions
        values = highlighted(preview.text.encode(), lexer=lexer)
        preview.html = mark_safe(values["html"])  # noqa: S308  (see below)
        return
    try:
        values = inspect_artifacts(
            project_id=project.pk,
            files=[(run, preview.artifact)],
            task="highlight",
            options={"lexer": lexer},
            within_s=_HIGHLIGHTED_WITHIN_S,
        )
    except InspectionRefused:
        return
    # Pygments escapes the text and writes nothing but spans around it.
    preview.html = mark_safe(values["html"])  # noqa: S308


def _is_figure(project: Project, run: RunDetail, artifact: Artifact, content: str) -> bool:
    """Return whether a JSON file is a figure of Plotly: its data, and a layout at the end."""
    if not _FIGURE.match(content):
        return False
    start = max(0, artifact.size_bytes - _TAIL_BYTES)
    length = artifact.size_bytes - start
    tail = read_artifact(
        project_id=project.pk, run=run, artifact=artifact, start=start, length=length
    )
    return '"layout"' in content or b'"layout"' in b"".join(tail)


def _is_table(project: Project, run: RunDetail, artifact: Artifact) -> bool:
    """Return whether a JSON file was logged as a table, or begins like one."""
    if artifact.path in tables_tagged(run):
        return True
    return bool(_SPLIT.match(_bytes(project, run, artifact, _SPLIT_BYTES)))


def _picture(preview: FilePreview, project: Project, run: RunDetail) -> FilePreview:
    """Show an image whose header says that a browser can decode it."""
    try:
        checked_image(_bytes(project, run, preview.artifact, HEADER_BYTES))
    except ImageRefused as refused:
        preview.reason = f"{refused} Download it to see it."
        return preview
    preview.kind = "picture"
    preview.url = media_url(project.slug, run.facts.id, preview.artifact.path)
    return preview


def _unread(artifact: Artifact) -> str:
    if artifact.size_bytes <= PREVIEW_BYTES:
        return ""
    return f"Only the first {PREVIEW_BYTES:,} of {artifact.size_bytes:,} bytes are shown."


def _omission_note(**counts: int) -> str:
    """Return a sentence with the numbers of what is not shown, empty where all is shown."""
    parts = [
        f"{count:,} more {noun[:-1] if count == 1 else noun}"
        for noun, count in counts.items()
        if count > 0
    ]
    verb = "is" if parts and sum(max(0, count) for count in counts.values()) == 1 else "are"
    return f"{' and '.join(parts)} {verb} not shown here." if parts else ""


def _bytes(project: Project, run: RunDetail, artifact: Artifact, most: int) -> bytes:
    length = min(most, artifact.size_bytes)
    return b"".join(read_artifact(project_id=project.pk, run=run, artifact=artifact, length=length))


def _table(preview: FilePreview, content: str, separator: str) -> FilePreview:
    """Render the first lines of a table, without the last one if it may be cut off."""
    lines = content.splitlines(keepends=True)
    unread = _unread(preview.artifact)
    if unread:
        lines = lines[:-1]
    try:
        rows = list(csv.reader(io.StringIO("".join(lines)), delimiter=separator))
    except csv.Error:
        preview.kind, preview.text, preview.left_out = "text", content, unread
        return preview
    preview.kind = "table"
    shown = [row[:TABLE_COLUMNS] for row in rows[: TABLE_ROWS + 1]]
    if shown:
        preview.head, preview.lines = (
            [(name, "") for name in shown[0]],
            [[*row] for row in shown[1:]],
        )
    preview.left_out = _omission_note(
        rows=0 if unread else len(rows) - len(shown),
        columns=max((len(row) for row in rows), default=0) - TABLE_COLUMNS,
    )
    if unread:
        sizes = f"the first {PREVIEW_BYTES:,} of {preview.artifact.size_bytes:,} bytes"
        more = f"At most {TABLE_ROWS} rows of {sizes} are shown; the file has more."
        preview.left_out = " ".join(filter(None, (more, preview.left_out)))
    return preview


def _parquet(preview: FilePreview, project: Project, run: RunDetail) -> FilePreview:
    """Render the first rows of a Parquet file with its columns. Another process reads it."""
    artifact = preview.artifact
    if artifact.size_bytes > MOST_PARQUET_BYTES:
        preview.reason = "This table is too large to show here; download it."
        return preview
    pieces = read_artifact(
        project_id=project.pk, run=run, artifact=artifact, length=artifact.size_bytes
    )
    try:
        values = preview_parquet(pieces, name=artifact.name, size_bytes=artifact.size_bytes)
    except TableUnreadable as error:
        preview.reason = f"{error} Download it to see it."
        return preview
    if values["problems"]:
        preview.reason = f"{values['problems'][0]['message']} Download it to see it."
        return preview
    columns, rows = values["statistics"]["columns"], values["preview"]
    preview.kind = "table"
    preview.head = [(column["name"], column["type"]) for column in columns[:TABLE_COLUMNS]]
    preview.lines = [row[:TABLE_COLUMNS] for row in rows[:TABLE_ROWS]]
    is_read = values["statistics"]["is_complete"]
    more_rows = values["statistics"]["rows"] - len(preview.lines) if is_read else 0
    sentences = [_omission_note(rows=more_rows, columns=len(columns) - TABLE_COLUMNS)]
    if not is_read:
        sentences.insert(0, f"The first {len(preview.lines)} rows are shown; the file has more.")
    preview.left_out = " ".join(filter(None, sentences))
    return preview


def _notebook(preview: FilePreview, content: bytes) -> FilePreview:
    """Render the cells of a notebook: sources, printed text and pictures, but never its HTML."""
    try:
        cells = json.loads(content)["cells"]
        preview.cells = [_notebook_cell(cell) for cell in cells[:MOST_CELLS]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        preview.reason = "This notebook cannot be read; download it."
        return preview
    preview.kind, preview.left_out = "notebook", _omission_note(cells=len(cells) - MOST_CELLS)
    return preview


def _undrawn(data: dict[str, Any]) -> str:
    return f"An output of {', '.join(data)[:200]} is not shown here." if data else ""


def _notebook_cell(cell: dict[str, Any]) -> dict[str, Any]:
    outputs: list[dict[str, str]] = []
    for output in cell.get("outputs") or []:
        data = output.get("data") or {}
        if "image/png" in data:
            outputs.append({"picture": "".join(data["image/png"]).replace("\n", "")})
            continue
        text = output.get("text") or data.get("text/plain") or output.get("traceback") or ""
        outputs.append({"text": shorten("".join(text), MOST_CHARACTERS) or _undrawn(data)})
    kind = "code" if cell.get("cell_type") == "code" else "words"
    source = "".join(cell.get("source") or "")
    html = render_markdown(source) if cell.get("cell_type") == "markdown" else ""
    return {"kind": kind, "source": source, "html": html, "outputs": outputs}
