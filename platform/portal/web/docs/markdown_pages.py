"""Pages of the documentation as HTML: Markdown by markdown-it, code by Pygments.

Raw HTML in a page is shown as text. Addresses and names that depend on the reader are placeholders
in the rendered page, so that it is rendered once.
"""

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

from portal.web.base.icons import svg
from portal.web.docs.catalog import (
    AS_WRITTEN,
    INDEX_PATH,
    DocsFile,
    files_by_slug,
    slugs_by_path,
)
from portal.web.docs.client import WHEEL_NAME

# Words that no lexer splits, and that no page contains.
_PORTAL, _GATEWAY, _PROJECT, _QUERY = "qqportalqq", "qqgatewayqq", "qqprojectqq", "qqqueryqq"
_SAMPLE_PROJECT = "vision"
_READERS_OWN = (
    (re.compile(r"http://localhost:8000|https://slipway\.example\.org"), _PORTAL),
    (re.compile(r"http://localhost:8002"), _GATEWAY),
    (re.compile(r"slipway-\d[\w.]*-py3-none-any\.whl"), WHEEL_NAME),
    (
        re.compile(
            r"(?<=/mlflow/)(?:vision|<project>|PROJECT)(?![\w-])"
            r"|(?<=project=\")vision(?=\")"
            r"|(?<=project=)PROJECT(?![\w-])"
            r"|(?<=--project )(?:vision|PROJECT|NAME)(?![\w-])"
            r"|(?<=-p )PROJECT(?![\w-])"
            r"|(?<=/projects/)vision(?![\w-])"
            r"|(?<=SLIPWAY_PROJECT=)vision(?![\w-])"
        ),
        _PROJECT,
    ),
)
_LEXERS = {"sh": "bash", "console": "bash"}
_FORMATTER = HtmlFormatter(nowrap=True)
_FILE_NAME = re.compile(r"[\w./-]+\.md")
_COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)


@dataclass(frozen=True)
class PageHeading:
    """A heading of a page, with its anchor. Its level is 2 or more."""

    level: int
    title: str
    anchor: str


@dataclass(frozen=True)
class Section:
    """Text below a heading, for the search. The first section of a page has an empty anchor."""

    title: str
    anchor: str
    text: str


@dataclass(frozen=True)
class RenderedPage:
    """A page: its title, its HTML with placeholders, its headings, and its text by section."""

    slug: str
    title: str
    summary: str
    template: str
    headings: tuple[PageHeading, ...]
    sections: tuple[Section, ...]


def html_for(page: RenderedPage, project: str | None) -> SafeString:
    """Return the HTML of a page with the addresses of this installation and a project's slug."""
    values = {
        _PORTAL: settings.SLIPWAY_URL,
        _GATEWAY: settings.SLIPWAY_GATEWAY_URL,
        _PROJECT: project or _SAMPLE_PROJECT,
        _QUERY: f"?project={project}" if project else "",
    }
    html = page.template
    for placeholder, value in values.items():
        html = html.replace(placeholder, escape(value))
    return mark_safe(html)  # noqa: S308  (rendered from our own files, raw HTML is escaped)


@cache
def rendered(slug: str) -> RenderedPage | None:
    """Return a page by its name in the URL, or None. Each page is rendered once in a process."""
    file = files_by_slug().get(slug)
    if file is None or not file.file.is_file():
        return None
    parser = _parser()
    text = _COMMENT.sub("", file.file.read_text(encoding="utf-8"))
    tokens = parser.parse(text)
    title, body = _cut_title(tokens)
    headings = _add_anchors(body)
    sections = tuple(_sections(title, body))
    for token in _each(body):
        _adapt(token, file)
    _resolve_links(body, file)
    return RenderedPage(
        slug=slug,
        title=title,
        summary=_summary(body),
        template=parser.renderer.render(body, parser.options, {}),
        headings=headings,
        sections=sections,
    )


def all_pages() -> list[RenderedPage]:
    """Return every page in the order of the catalogue."""
    return [page for slug in files_by_slug() if (page := rendered(slug)) is not None]


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("fence", _render_code)
    parser.add_render_rule("code_block", _render_code)
    parser.add_render_rule("table_open", _render_table_open)
    parser.add_render_rule("table_close", _render_table_close)
    parser.add_render_rule("image", _render_image)
    return parser


def _render_code(
    _renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any
) -> str:
    token = tokens[index]
    language = token.info.strip().partition(" ")[0]
    try:
        lexer = get_lexer_by_name(
            {"sh": "bash", "console": "bash"}.get(language, language or "bash")
        )
    except ClassNotFound:
        lexer = TextLexer()
    code = highlight(token.content, lexer, _FORMATTER)
    name = f"code-{index}"
    return (
        f'<div class="docs-code"><pre tabindex="0"><code id="{name}">{code}</code></pre>'
        f'<button type="button" class="btn btn-sm copy-button" data-copy="{name}" '
        f'aria-label="Copy this snippet">{svg("copy")}'
        '<span data-copy-status aria-live="polite">Copy</span></button></div>\n'
    )


def _render_table_open(*_arguments: Any) -> str:
    return '<div class="table-responsive" tabindex="0"><table class="table">'


def _render_table_close(*_arguments: Any) -> str:
    return "</table></div>\n"


def _render_image(
    _renderer: Any, tokens: Sequence[Token], index: int, _options: Any, _env: Any
) -> str:
    return str(escape(tokens[index].content))


def _each(tokens: Iterable[Token]) -> Iterable[Token]:
    for token in tokens:
        yield token
        yield from _each(token.children or ())


def _plain(token: Token) -> str:
    """Return the text of an inline token without its markup."""
    children = token.children or ()
    return "".join(" " if child.type == "softbreak" else child.content for child in children)


def _cut_title(tokens: list[Token]) -> tuple[str, list[Token]]:
    """Return the title, which the layout shows, and the tokens below it."""
    if len(tokens) > 2 and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        return _plain(tokens[1]), tokens[3:]
    return "Documentation", tokens


def anchor_of(title: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _add_anchors(tokens: list[Token]) -> tuple[PageHeading, ...]:
    headings = []
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            title = _plain(tokens[position + 1])
            heading = PageHeading(int(token.tag[1:]), title, anchor_of(title))
            token.attrSet("id", heading.anchor)
            headings.append(heading)
    return tuple(headings)


def _sections(title: str, tokens: list[Token]) -> Iterable[Section]:
    name, anchor = title, ""
    texts: list[str] = []
    for position, token in enumerate(tokens):
        if token.type == "heading_open":
            yield Section(name, anchor, " ".join(texts))
            name, anchor = _plain(tokens[position + 1]), str(token.attrGet("id"))
            texts = []
        elif token.type == "inline" and tokens[position - 1].type != "heading_open":
            texts.append(_plain(token))
        elif token.type in ("fence", "code_block"):
            texts.append(token.content)
    yield Section(name, anchor, " ".join(texts))


def _summary(tokens: list[Token]) -> str:
    """Return the first sentence of a page, empty where the page begins with something else."""
    if not tokens or tokens[0].type != "paragraph_open":
        return ""
    return re.split(r"(?<=[.:])\s", _plain(tokens[1]), maxsplit=1)[0].rstrip(":")


def _adapt(token: Token, file: DocsFile) -> None:
    """Put placeholders where code names an address or a project."""
    if file.slug in AS_WRITTEN or file.slug.startswith("architecture"):
        return
    if token.type == "code_inline" and token.content == _SAMPLE_PROJECT:
        token.content = _PROJECT
    if token.type in ("fence", "code_block", "code_inline"):
        for pattern, placeholder in _READERS_OWN:
            token.content = pattern.sub(placeholder, token.content)


@cache
def title_of(slug: str) -> str:
    """Return the title of a page from its first line, without rendering the page."""
    with files_by_slug()[slug].file.open(encoding="utf-8") as lines:
        return lines.readline().lstrip("# ").strip().replace("`", "")


def _resolve_links(tokens: list[Token], file: DocsFile) -> None:
    """Point links between files to pages. A link to a file that is no page becomes text."""
    for token in tokens:
        children = token.children or []
        for position, child in enumerate(children):
            if child.type == "link_open":
                _resolve_link(children, position, file)


def _resolve_link(children: list[Token], position: int, file: DocsFile) -> None:
    link = children[position]
    target = urlsplit(str(link.attrGet("href") or ""))
    if target.scheme or not target.path:
        return
    folder = posixpath.dirname(file.path)
    path = posixpath.normpath(posixpath.join(folder, target.path))
    fragment = f"#{target.fragment}" if target.fragment else ""
    text = children[position + 1]
    if path == INDEX_PATH:
        if _FILE_NAME.fullmatch(text.content):
            text.content = "Documentation"
        link.attrSet("href", f"/docs{_QUERY}")
    elif path in slugs_by_path():
        if _FILE_NAME.fullmatch(text.content):
            text.content = title_of(slugs_by_path()[path])
        link.attrSet("href", f"/docs/{slugs_by_path()[path]}{_QUERY}{fragment}")
    else:
        close = next(child for child in children[position:] if child.type == "link_close")
        link.tag = close.tag = "span"
        link.attrs = {"title": f"{path} in the source of Slipway"}
