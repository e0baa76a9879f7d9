"""Preview of a notebook in the portal: its cells, as plain text and pictures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from portal.notebooks.cell_renderer import lines_of, render_outputs

_MOST_CELLS = 300


@dataclass(frozen=True)
class PreviewCell:
    """One cell. `count` is the number its run had, `failed` says that it ended in an error."""

    number: int
    type: str
    count: int | None
    source: str
    text: str
    pictures: Sequence[str]
    failed: bool
    injected: bool


@dataclass(frozen=True)
class NotebookPreview:
    """The first cells of a notebook. `more` counts those that are not shown."""

    cells: Sequence[PreviewCell]
    more: int


def preview_of(content: bytes) -> NotebookPreview | None:
    """Return the preview of a notebook, or None if the content is no notebook."""
    try:
        value = json.loads(content)["cells"]
        cells = [cell for cell in value if isinstance(cell, dict)]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return NotebookPreview(
        [_cell(number, cell) for number, cell in enumerate(cells[:_MOST_CELLS], start=1)],
        more=max(0, len(cells) - _MOST_CELLS),
    )


def _cell(number: int, cell: dict[str, object]) -> PreviewCell:
    text, pictures = render_outputs(cell)
    count, outputs, metadata = (cell.get(it) for it in ("execution_count", "outputs", "metadata"))
    tags = metadata.get("tags") if isinstance(metadata, dict) else None
    return PreviewCell(
        number=number,
        type=str(cell.get("cell_type"))[:20],
        count=count if isinstance(count, int) else None,
        source="\n".join(lines_of(cell.get("source"))),
        text="\n".join(text),
        pictures=pictures,
        failed=any(
            isinstance(output, dict) and output.get("output_type") == "error"
            for output in (outputs if isinstance(outputs, list) else ())
        ),
        injected=isinstance(tags, list) and "injected-parameters" in tags,
    )
