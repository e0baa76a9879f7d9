"""PDF of a report, written by a confined process: it reads images and text of people."""

import base64
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import structlog

from portal.core.confined_process import run_confined
from portal.core.errors import Unavailable
from portal.reports.content.pieces import BlockContent, Figure

log = structlog.get_logger(__name__)
_WITHIN_S = 60.0
_QUEUE_S = 10.0
_MOST_BYTES = 64 * 1024**2
_writing = BoundedSemaphore(1)


def pdf_of(title: str, subtitle: str, blocks: Sequence[BlockContent]) -> bytes:
    """Return a report as PDF. Raises Unavailable if that takes too much, or others wait."""
    document = {
        "title": title,
        "subtitle": subtitle,
        "fonts": str(_fonts()),
        "blocks": [_plain(block) for block in blocks],
    }
    if not _writing.acquire(timeout=_QUEUE_S):
        raise _refused("Other reports are being written as PDF.")
    try:
        return _written(document)
    finally:
        _writing.release()


def _written(document: Mapping[str, Any]) -> bytes:
    try:
        with tempfile.TemporaryFile() as source:
            source.write(json.dumps(document).encode())
            source.seek(0)
            done = run_confined(
                "portal.reports.content.pdf_process",
                source=source,
                within_s=_WITHIN_S,
                most_output_bytes=_MOST_BYTES,
            )
    except subprocess.TimeoutExpired:
        raise _refused("Writing the PDF takes too long.") from None
    if done.status or not done.output:
        log.warning("report_pdf_failed", status=done.status, error=done.errors)
        raise _refused("The PDF cannot be written, or is too large.")
    return done.output


def _fonts() -> Path:
    """Return the folder of the DejaVu fonts that come with matplotlib, without importing it."""
    package = find_spec("matplotlib")
    if package is None or package.origin is None:
        raise _refused("The fonts of matplotlib are not installed.")
    return Path(package.origin).parent / "mpl-data" / "fonts" / "ttf"


def _refused(reason: str) -> Unavailable:
    return Unavailable(
        reason,
        code="pdf_failed",
        next_step="Try again in a moment, or export HTML and print it.",
        retry_after_s=10,
    )


def _plain(block: BlockContent) -> dict[str, Any]:
    """Return a block as JSON for the process: texts, numbers and images in base64."""
    table = block.table
    return {
        "kind": block.kind,
        "heading": block.heading.text if block.heading else "",
        "missing": block.missing,
        "text": block.text,
        "caption": block.caption,
        "notes": list(block.notes),
        "details": [[name, cell.text] for name, cell in block.details],
        "legend": [[entry.at, entry.name] for entry in block.legend],
        "figures": [_plain_figure(figure) for figure in block.figures],
        "table": [
            list(table.headings),
            *([cell.text for cell in row] for row in table.rows),
        ]
        if table
        else [],
        "image": base64.b64encode(block.image.content).decode() if block.image else "",
    }


def _plain_figure(figure: Figure) -> dict[str, Any]:
    drawing = figure.drawing
    return {
        "title": figure.title,
        "note": figure.note or ("No values." if drawing.is_empty else ""),
        "grid": [] if drawing.is_empty else list(drawing.grid),
        "labels": [[it.x, it.y, it.text, it.anchor] for it in drawing.labels],
        "lines": [[at, list(points)] for at, points in drawing.lines if points],
    }
