"""A confined process that writes a PDF: `python -m portal.reports.content.pdf_process`.

It reads the JSON of `pdf.pdf_of` from standard input, and writes the PDF to standard output.
"""

import base64
import io
import json
import resource
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fpdf import FPDF
from fpdf.enums import WrapMode, XPos, YPos
from markdown_it import MarkdownIt
from markdown_it.token import Token
from PIL import Image

MEMORY_BYTES = 1536 * 1024**2
CPU_S = 45
_SANS, _MONO = "DejaVu", "DejaVuMono"
_FONTS = (
    (_SANS, "", "DejaVuSans.ttf"),
    (_SANS, "B", "DejaVuSans-Bold.ttf"),
    (_SANS, "I", "DejaVuSans-Oblique.ttf"),
    (_SANS, "BI", "DejaVuSans-BoldOblique.ttf"),
    (_MONO, "", "DejaVuSansMono.ttf"),
)
_COLOURS = ("#3451d1", "#0b7a75", "#b4560f", "#8d2f8f", "#b3261e", "#4d7c0f", "#0369a1", "#6b5b2e")
_DASHES = ((0.0, 0.0), (2.4, 1.4), (0.8, 1.0), (3.2, 1.0))
_TEXT, _QUIET, _LINE = (20, 24, 32), (93, 100, 112), (213, 216, 222)
_BODY_PT, _SMALL_PT, _TITLE_PT = 10, 8.5, 20
_HEADINGS_PT = {"h1": 16, "h2": 14, "h3": 12}
# The drawing is 720 units wide, and 240 high.
_UNITS_WIDE, _UNITS_HIGH = 720, 240
_MOST_PIXELS = 25_000_000
_MOST_IMAGE_MM = 180.0
_INDENT_MM = 6.0
_MOST_COLUMNS = 10


class _Writer:
    """Writes blocks onto the pages of one PDF. Lengths are millimetres, font sizes points."""

    def __init__(self, fonts: Path) -> None:
        pdf = FPDF(format="A4")
        pdf.set_auto_page_break(auto=True, margin=18)
        pdf.set_margins(18, 18, 18)
        for family, style, name in _FONTS:
            pdf.add_font(family, style, str(fonts / name))
        pdf.add_page()
        self.pdf = pdf
        self.markdown = MarkdownIt("commonmark", {"html": False})
        self.markdown.enable(["table", "strikethrough"]).disable("image")

    def line(
        self, text: str, *, size: float = _BODY_PT, style: str = "", quiet: bool = False
    ) -> None:
        """Write a paragraph in one style."""
        if not text.strip():
            return
        self.pdf.set_font(_SANS, style, size)
        self.pdf.set_text_color(*(_QUIET if quiet else _TEXT))
        self.pdf.multi_cell(
            0,
            size * 0.5,
            text,
            align="L",
            new_x=XPos.LMARGIN,
            new_y=YPos.NEXT,
            wrapmode=WrapMode.CHAR if _has_long_word(text) else WrapMode.WORD,
        )

    def gap(self, height: float) -> None:
        """Leave some space."""
        self.pdf.ln(height)

    def block(self, block: dict[str, Any]) -> None:
        """Write one block."""
        if block["heading"]:
            self.line(block["heading"], size=12, style="B")
        if block["missing"]:
            self.line(block["missing"], quiet=True)
        if block["text"]:
            self.written(block["text"])
        for name, text in block["details"]:
            self.line(f"{name}: {text}", size=_SMALL_PT)
        for figure in block["figures"]:
            self.figure(figure)
        for at, name in block["legend"]:
            self.legend(at, name)
        if block["table"]:
            self.table(block["table"])
        if block["image"]:
            self.image(base64.b64decode(block["image"]))
        for note in (*block["notes"], block["caption"]):
            self.line(note, size=_SMALL_PT, quiet=True)
        self.gap(5)

    def written(self, text: str) -> None:
        """Write Markdown: headings, paragraphs, lists, code and tables."""
        tokens = self.markdown.parse(text)
        depth, at, prefix, counts = 0, 0, "", list[int]()
        while at < len(tokens):
            token = tokens[at]
            at += 1
            if token.type in ("bullet_list_open", "ordered_list_open"):
                depth += 1
                start = token.attrGet("start")
                counts.append(int(start or 1) if token.type.startswith("ordered") else 0)
            elif token.type in ("bullet_list_close", "ordered_list_close"):
                depth -= 1
                counts.pop()
            elif token.type == "list_item_open" and counts:
                prefix = f"{counts[-1]}. " if counts[-1] else "• "
                counts[-1] += bool(counts[-1])
            elif token.type == "heading_open":
                size = _HEADINGS_PT.get(token.tag, _BODY_PT + 1)
                self.line(_plain_text(tokens[at]), size=size, style="B")
                self.gap(1)
                at += 2
            elif token.type == "table_open":
                end = next(i for i in range(at, len(tokens)) if tokens[i].type == "table_close")
                self.table(list(_rows(tokens[at:end])))
                at = end + 1
            elif token.type in ("fence", "code_block"):
                self.code(token.content)
            elif token.type == "inline":
                self.inline(prefix, token, depth)
                prefix = ""
            elif token.type == "hr":
                self.rule()

    def inline(self, prefix: str, token: Token, depth: int) -> None:
        """Write a paragraph with its bold, italic and monospaced parts."""
        pdf = self.pdf
        margin = pdf.l_margin
        pdf.set_left_margin(margin + min(depth, 6) * _INDENT_MM)
        pdf.set_x(pdf.l_margin)
        pdf.set_text_color(*_TEXT)
        styles: list[str] = []
        pdf.set_font(_SANS, "", _BODY_PT)
        if prefix:
            pdf.write(5, prefix)
        for child in token.children or ():
            style = "".join(sorted(set(styles)))
            if child.type in ("strong_open", "em_open"):
                styles.append("B" if child.type == "strong_open" else "I")
            elif child.type in ("strong_close", "em_close") and styles:
                styles.pop()
            elif child.type == "code_inline":
                pdf.set_font(_MONO, "", _BODY_PT - 1)
                pdf.write(5, child.content)
            elif child.type in ("text", "softbreak", "hardbreak"):
                pdf.set_font(_SANS, style, _BODY_PT)
                pdf.write(5, child.content or ("\n" if child.type == "hardbreak" else " "))
        pdf.set_left_margin(margin)
        pdf.ln(6 if not depth else 5)

    def code(self, text: str) -> None:
        """Write code as it is."""
        self.pdf.set_font(_MONO, "", _SMALL_PT)
        self.pdf.set_text_color(*_TEXT)
        self.pdf.set_fill_color(244, 245, 247)
        self.pdf.multi_cell(
            0,
            4.2,
            text.rstrip("\n").expandtabs(4) or " ",
            align="L",
            fill=True,
            wrapmode=WrapMode.CHAR,
            new_x=XPos.LMARGIN,
            new_y=YPos.NEXT,
        )
        self.gap(2)

    def rule(self) -> None:
        """Draw a line across the page."""
        pdf = self.pdf
        pdf.set_draw_color(*_LINE)
        pdf.line(pdf.l_margin, pdf.y + 1, pdf.w - pdf.r_margin, pdf.y + 1)
        self.gap(4)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Write a table whose first row is its head. Columns beyond the tenth are left out."""
        width = max(map(len, rows), default=0)
        if not width:
            return
        self.pdf.set_font(_SANS, "", _SMALL_PT - (1.5 if width > 6 else 0))
        self.pdf.set_text_color(*_TEXT)
        self.pdf.set_draw_color(*_LINE)
        with self.pdf.table(
            text_align="LEFT", line_height=4.6, wrapmode=WrapMode.CHAR, first_row_as_headings=True
        ) as table:
            for texts in rows:
                row = table.row()
                for text in [*texts, *[""] * (width - len(texts))][:_MOST_COLUMNS]:
                    row.cell(text)
        if width > _MOST_COLUMNS:
            self.line(
                f"{width - _MOST_COLUMNS} more columns are left out.", size=_SMALL_PT, quiet=True
            )
        self.gap(2)

    def figure(self, figure: dict[str, Any]) -> None:
        """Draw a chart, and write its title and note."""
        pdf = self.pdf
        scale = pdf.epw / _UNITS_WIDE
        height = _UNITS_HIGH * scale
        if figure["lines"] and pdf.will_page_break(height + 10):
            pdf.add_page()
        self.line(figure["title"], style="B", size=_SMALL_PT + 0.5)
        if figure["lines"]:
            left, top = pdf.l_margin, pdf.y
            pdf.set_draw_color(*_LINE)
            pdf.set_line_width(0.15)
            for x1, y1, x2, y2 in figure["grid"]:
                pdf.line(left + x1 * scale, top + y1 * scale, left + x2 * scale, top + y2 * scale)
            pdf.set_font(_SANS, "", 6.5)
            pdf.set_text_color(*_QUIET)
            for x, y, text, anchor in figure["labels"]:
                shift = {"end": 1.0, "middle": 0.5}.get(anchor, 0.0) * pdf.get_string_width(text)
                pdf.text(left + x * scale - shift, top + y * scale, text)
            for at, points in figure["lines"]:
                self.stroke(at, [(left + x * scale, top + y * scale) for x, y in points])
            pdf.set_y(top + height)
        self.line(figure["note"], size=_SMALL_PT, quiet=True)

    def legend(self, at: int, name: str) -> None:
        """Write a line of a legend."""
        pdf = self.pdf
        if pdf.will_page_break(5):
            pdf.add_page()
        y = pdf.y + 2.2
        self.stroke(at, [(pdf.l_margin, y), (pdf.l_margin + 8, y)])
        pdf.set_x(pdf.l_margin + 10)
        pdf.set_font(_SANS, "", _SMALL_PT)
        pdf.set_text_color(*_TEXT)
        pdf.multi_cell(0, 4.4, name, align="L", new_x=XPos.LMARGIN, new_y=YPos.NEXT)

    def stroke(self, at: int, points: Sequence[tuple[float, float]]) -> None:
        """Draw a line in the colour and dash of its place in the legend."""
        pdf = self.pdf
        pdf.set_draw_color(_COLOURS[at % len(_COLOURS)])
        pdf.set_line_width(0.45)
        dash, space = _DASHES[at // len(_COLOURS) % len(_DASHES)]
        pdf.set_dash_pattern(dash=dash, gap=space)
        if len(points) == 1:
            pdf.circle(points[0][0], points[0][1], 0.6, style="D")
        else:
            pdf.polyline(points)
        pdf.set_dash_pattern()
        pdf.set_line_width(0.2)

    def image(self, content: bytes) -> None:
        """Show an image at most as wide as the page, or say that it cannot be shown."""
        try:
            with Image.open(io.BytesIO(content), formats=("PNG", "JPEG", "GIF", "WEBP")) as image:
                width, height = image.size
                if width * height > _MOST_PIXELS:
                    raise ValueError("too many pixels")
                flat = image.convert("RGB")
        except Exception:  # noqa: BLE001  (a damaged image raises nearly anything)
            self.line("This image cannot be shown in a PDF.", quiet=True)
            return
        wide = min(self.pdf.epw, width * 0.2646)
        tall = wide * height / width
        if tall > _MOST_IMAGE_MM:
            wide, tall = wide * _MOST_IMAGE_MM / tall, _MOST_IMAGE_MM
        self.pdf.image(flat, w=wide, h=tall)
        self.gap(1)


def _has_long_word(text: str) -> bool:
    return any(len(word) > 60 for word in text.split())


def _plain_text(token: Token) -> str:
    return "".join(child.content or " " for child in token.children or ())


def _rows(tokens: Iterable[Token]) -> Iterable[list[str]]:
    row: list[str] = []
    for token in tokens:
        if token.type == "tr_open":
            row = []
        elif token.type == "inline":
            row.append(_plain_text(token))
        elif token.type == "tr_close":
            yield row


def main() -> None:
    """Write the document on standard input within limits of memory and time."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    document = json.loads(sys.stdin.buffer.read())
    writer = _Writer(Path(document["fonts"]))
    writer.pdf.set_title(document["title"])
    writer.line(document["title"], size=_TITLE_PT, style="B")
    writer.line(document["subtitle"], size=_SMALL_PT, quiet=True)
    writer.gap(4)
    for block in document["blocks"]:
        writer.block(block)
    sys.stdout.buffer.write(bytes(writer.pdf.output()))


if __name__ == "__main__":
    main()
