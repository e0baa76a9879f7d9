"""Content of blocks, after their objects were read: texts, figures, tables, images."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.utils.safestring import SafeString

from portal.reports.content.line_charts import Drawing


@dataclass(frozen=True)
class Cell:
    """A text, with the address it links to if there is one."""

    text: str
    url: str = ""
    is_number: bool = False


@dataclass(frozen=True)
class Figure:
    """A chart. `live` has what the page needs to draw it with tooltips, or is None."""

    title: str
    drawing: Drawing
    svg: SafeString
    note: str = ""
    live: dict[str, Any] | None = None

    @property
    def live_json(self) -> str:
        """The JSON of `live`, to be escaped."""
        return json.dumps(self.live)


@dataclass(frozen=True)
class LegendEntry:
    """A line of the charts of a block: its swatch and name."""

    at: int
    swatch: SafeString
    name: str
    url: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True)
class Image:
    """An image of a run: an address of the portal, or its bytes as a `data:` URL."""

    src: str
    alt: str
    content: bytes = b""


@dataclass(frozen=True)
class BlockContent:
    """A block with what its objects are now. `missing` says why there is nothing to show.

    `text` is Markdown, and `html` the same as safe HTML.
    """

    kind: str
    caption: str = ""
    heading: Cell | None = None
    missing: str = ""
    text: str = ""
    html: str = ""
    details: Sequence[tuple[str, Cell]] = ()
    legend: Sequence[LegendEntry] = ()
    figures: Sequence[Figure] = ()
    table: Table | None = None
    image: Image | None = None
    notes: Sequence[str] = field(default=())
