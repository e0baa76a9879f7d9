"""Cells of a notebook as HTML that is safe in a page of the portal.

Notebooks are hostile. Markdown and tables pass a sanitizer that lets no style, script, id or
address of another site's picture through. Code is coloured by Pygments, which escapes it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import nh3
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.token import STANDARD_TYPES

from portal.core.text import whole_characters
from portal.notebooks.previews import NotebookPreview, OutputKind, PreviewCell, PreviewOutput

# Pygments by name of the language of a kernel, of a cell magic and of a fence. No others are
# loaded, because plug-ins could add lexers.
_LEXERS: Final = {
    **dict.fromkeys(("python", "ipython", "ipython3", "py", "python3"), "python"),
    **dict.fromkeys(("bash", "sh", "shell", "zsh"), "bash"),
    **dict.fromkeys(("javascript", "js"), "javascript"),
    **{name: name for name in ("r", "julia", "sql", "json", "html", "css", "yaml", "toml")},
    **{name: name for name in ("c", "cpp", "java", "rust", "go", "ruby", "scala", "latex")},
    "console": "console",
    "diff": "diff",
    "xml": "xml",
}
_FORMATTER: Final = HtmlFormatter(nowrap=True)
# Beyond this many characters on a page code is shown without colours.
_MOST_COLOURED: Final = 200_000
_TAGS: Final = {
    *("a", "abbr", "b", "blockquote", "br", "caption", "code", "dd", "del", "details", "div", "dl"),
    *("dt", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "img", "kbd", "li", "mark", "ol"),
    *("p", "pre", "q", "s", "small", "span", "strong", "sub", "summary", "sup", "table", "tbody"),
    *("td", "tfoot", "th", "thead", "tr", "u", "ul"),
}
_ATTRIBUTES: Final = {
    "a": {"href", "title"},
    "img": {"src", "alt", "title"},
    "ol": {"start"},
    **{cell: {"colspan", "rowspan", "scope"} for cell in ("td", "th")},
}
_COLOURS: Final = {name for name in STANDARD_TYPES.values() if name}
_PICTURES: Final = tuple(f"data:image/{kind};base64," for kind in ("png", "jpeg", "gif"))
_SCHEMES: Final = ("http://", "https://", "mailto:")
_ATTACHMENT: Final = "attachment:"


@dataclass(frozen=True)
class OutputView:
    """One result: `html` of `kind`, or the `src` of a picture."""

    kind: str
    html: SafeString
    src: str = ""


@dataclass(frozen=True)
class CellView:
    """One cell with its source as HTML. `cell` has the rest."""

    cell: PreviewCell
    source: SafeString
    outputs: Sequence[OutputView]


def cell_views(preview: NotebookPreview) -> list[CellView]:
    """Render the cells of a preview."""
    highlighter = _Highlighter()
    return [_cell_view(cell, preview.language, highlighter) for cell in preview.cells]


def code_html(code: str, language: str) -> SafeString:
    """Render the text of a file as code, without colours if the language is unknown."""
    return _Highlighter().html(code, language)


class _Highlighter:
    """Colours code until the budget of a page is spent: a lexer takes its time."""

    def __init__(self) -> None:
        self._left = _MOST_COLOURED

    def html(self, code: str, language: str) -> SafeString:
        """Return code as HTML, without colours if its language is unknown."""
        name = _LEXERS.get(language)
        if name is None or len(code) > self._left:
            return escape(code)
        self._left -= len(code)
        lexer = get_lexer_by_name(name, stripnl=False, ensurenl=False)
        coloured = highlight(code, lexer, _FORMATTER)
        return mark_safe(str(coloured))  # noqa: S308  (Pygments escapes it)


def _cell_view(cell: PreviewCell, language: str, highlighter: _Highlighter) -> CellView:
    outputs = [_output_view(output, highlighter) for output in cell.outputs]
    if cell.type == "markdown":
        return CellView(cell, _markdown(cell.source, cell.attachments, highlighter), outputs)
    if cell.type != "code":
        return CellView(cell, escape(cell.source), outputs)
    first = cell.source.partition("\n")[0].split()
    magic = first[0].removeprefix("%%") if first and first[0].startswith("%%") else ""
    return CellView(
        cell, highlighter.html(cell.source, magic if magic in _LEXERS else language), outputs
    )


def _output_view(output: PreviewOutput, highlighter: _Highlighter) -> OutputView:
    match output.kind:
        case OutputKind.PICTURE:
            return OutputView(output.kind, SafeString(), output.text)
        case OutputKind.HTML:
            return OutputView(output.kind, _sanitized(output.text, {}))
        case OutputKind.MARKDOWN:
            return OutputView(output.kind, _markdown(output.text, {}, highlighter))
        case _:
            return OutputView(output.kind, escape(output.text))


def _markdown(text: str, attachments: Mapping[str, str], highlighter: _Highlighter) -> SafeString:
    """Return Markdown as HTML. Raw HTML in it is common in notebooks, and sanitized as well."""

    def coloured(code: str, language: str, _: str) -> str:
        return str(highlighter.html(code, language.lower()))

    options: dict[str, Any] = {"html": True, "highlight": coloured}
    parser = MarkdownIt("commonmark", options).enable(["table", "strikethrough"])
    return _sanitized(parser.render(text), attachments)


def _sanitized(html: str, attachments: Mapping[str, str]) -> SafeString:
    """Return HTML without anything that runs, loads from elsewhere, or changes the page."""

    def keep(tag: str, attribute: str, value: str) -> str | None:
        if (tag, attribute) == ("img", "src"):
            source = attachments.get(unquote(value.removeprefix(_ATTACHMENT)), value)
            # The site of a picture would learn who reads the notebook.
            return source if source.startswith(_PICTURES) else None
        if (tag, attribute) == ("a", "href"):
            # Other addresses are relative to a place that the portal does not serve.
            return value if value.lower().startswith(_SCHEMES) else None
        return value

    return mark_safe(  # noqa: S308  (sanitized)
        nh3.clean(
            whole_characters(html),
            tags=_TAGS,
            clean_content_tags={"script", "style", "title", "template", "noscript", "svg", "math"},
            attributes=_ATTRIBUTES,
            attribute_filter=keep,
            url_schemes={"http", "https", "mailto", "data", "attachment"},
            allowed_classes={"span": _COLOURS},
            link_rel="noopener noreferrer nofollow",
        )
    )
