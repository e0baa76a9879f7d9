"""Preview of a notebook in the portal: its cells and their results, as the author wrote them.

Nothing here is safe to show as HTML. `portal.web.base.notebook_cells` renders it.
"""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from portal.notebooks.cell_renderer import lines_of, pictures_of

_MOST_CELLS = 300
_MOST_OUTPUTS = 100
_MOST_PICTURES = 20
_MOST_PICTURE_CHARACTERS = 2_000_000
_MOST_HTML_CHARACTERS = 500_000


class OutputKind(StrEnum):
    """Kinds of results. `HTML` and `MARKDOWN` are still to be made safe."""

    TEXT = "text"
    STDERR = "stderr"
    ERROR = "error"
    PICTURE = "picture"
    HTML = "html"
    MARKDOWN = "markdown"


@dataclass(frozen=True)
class PreviewOutput:
    """One result of a cell: a text, or the `data:` address of a picture."""

    kind: OutputKind
    text: str


@dataclass(frozen=True)
class PreviewCell:
    """One cell. `count` is the number its run had, `failed` says that it ended in an error.

    `attachments` are pictures of a Markdown cell: `data:` addresses by name.
    """

    number: int
    type: str
    count: int | None
    source: str
    outputs: Sequence[PreviewOutput] = ()
    attachments: Mapping[str, str] = field(default_factory=dict)
    failed: bool = False
    injected: bool = False


@dataclass(frozen=True)
class NotebookPreview:
    """The first cells of a notebook in a language. `more` counts those that are not shown."""

    language: str
    cells: Sequence[PreviewCell]
    more: int


def preview_of(content: bytes) -> NotebookPreview | None:
    """Return the preview of a notebook, or None if the content is no notebook."""
    try:
        notebook = json.loads(content)
        cells = [cell for cell in notebook["cells"] if isinstance(cell, dict)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return NotebookPreview(
        language=_language_of(notebook.get("metadata")),
        cells=[_cell(number, cell) for number, cell in enumerate(cells[:_MOST_CELLS], start=1)],
        more=max(0, len(cells) - _MOST_CELLS),
    )


def _language_of(metadata: object) -> str:
    """Return the language that the kernel states, Python if it states none."""
    values = metadata if isinstance(metadata, dict) else {}
    for name, key in (("language_info", "name"), ("kernelspec", "language")):
        part = values.get(name)
        if isinstance(part, dict) and isinstance(part.get(key), str):
            return str(part[key]).lower()[:30]
    return "python"


def _cell(number: int, cell: dict[str, Any]) -> PreviewCell:
    count, metadata = cell.get("execution_count"), cell.get("metadata")
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    outputs = [*_outputs(cell)]
    return PreviewCell(
        number=number,
        type=str(cell.get("cell_type"))[:20],
        count=count if isinstance(count, int) else None,
        source="\n".join(lines_of(cell.get("source"))),
        outputs=outputs,
        attachments=dict(_attachments(cell)),
        failed=any(output.kind is OutputKind.ERROR for output in outputs),
        injected=isinstance(tags, list) and "injected-parameters" in tags,
    )


def _outputs(cell: dict[str, Any]) -> Iterator[PreviewOutput]:
    """Yield the results of a cell in their order, and how many are left out."""
    value = cell.get("outputs")
    outputs = [it for it in value if isinstance(it, dict)] if isinstance(value, list) else []
    pictures = 0
    for output in outputs[:_MOST_OUTPUTS]:
        shown = _output(output)
        if shown.kind is OutputKind.PICTURE:
            pictures += 1
            if pictures > _MOST_PICTURES:
                continue
        if shown.text:
            yield shown
    for left_out, noun in (
        (len(outputs) - _MOST_OUTPUTS, "results"),
        (pictures - _MOST_PICTURES, "pictures"),
    ):
        if left_out > 0:
            note = f"[{left_out:,} more {noun} are not shown here; the notebook has them]"
            yield PreviewOutput(OutputKind.TEXT, note)


def _output(output: dict[str, Any]) -> PreviewOutput:
    kind = output.get("output_type")
    if kind == "stream":
        is_error = output.get("name") == "stderr"
        text = "\n".join(lines_of(output.get("text")))
        return PreviewOutput(OutputKind.STDERR if is_error else OutputKind.TEXT, text)
    if kind == "error":
        traceback = output.get("traceback")
        lines = [str(line) for line in traceback] if isinstance(traceback, list) else []
        text = "\n".join(lines) or f"{output.get('ename')}: {output.get('evalue')}"
        return PreviewOutput(OutputKind.ERROR, "\n".join(lines_of(text)))
    data = output.get("data")
    return _rich(data if isinstance(data, dict) else {})


def _rich(data: dict[str, Any]) -> PreviewOutput:
    """Return the richest form of a result that can be shown without running its code."""
    picture = next(iter(pictures_of(data)), "") or _vector_picture(data)
    if picture:
        return PreviewOutput(OutputKind.PICTURE, picture)
    html = _joined(data.get("text/html"))
    # Tables are worth showing. Other HTML is mostly a frame for scripts, which never run here.
    if "<table" in html and len(html) <= _MOST_HTML_CHARACTERS:
        return PreviewOutput(OutputKind.HTML, html)
    if markdown := _joined(data.get("text/markdown")):
        return PreviewOutput(OutputKind.MARKDOWN, "\n".join(lines_of(markdown)))
    text = "\n".join(lines_of(data.get("text/plain")))
    if data and not text:
        text = f"An output of {', '.join(map(str, data))[:200]} is not shown here."
    return PreviewOutput(OutputKind.TEXT, text)


def _vector_picture(data: dict[str, Any]) -> str:
    """Return an SVG as a `data:` address. As a picture it neither runs scripts nor loads files."""
    text = _joined(data.get("image/svg+xml"))
    if not text or len(text) > _MOST_PICTURE_CHARACTERS:
        return ""
    encoded = base64.b64encode(text.encode("utf-8", "replace")).decode()
    return f"data:image/svg+xml;base64,{encoded}"


def _attachments(cell: dict[str, Any]) -> Iterator[tuple[str, str]]:
    value = cell.get("attachments")
    for name, data in (value if isinstance(value, dict) else {}).items():
        picture = next(iter(pictures_of(data)), "") if isinstance(data, dict) else ""
        if picture:
            yield str(name), picture


def _joined(text: Any) -> str:
    return "".join(map(str, text)) if isinstance(text, list) else str(text or "")
