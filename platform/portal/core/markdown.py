"""Markdown of people as HTML. It is hostile: raw HTML is escaped, and pictures are not loaded."""

from collections.abc import MutableMapping, Sequence
from typing import Any

from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

MOST_CHARACTERS = 200_000


def _open_link(
    self: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    options: Any,
    env: MutableMapping[str, Any],
) -> str:
    # The page that a link leads to learns nothing of this one.
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return str(self.renderToken(tokens, index, options, env))


def _parser() -> MarkdownIt:
    # CommonMark without raw HTML. Links may lead to http, https, mailto and pages of the portal;
    # the library refuses `javascript:` and its like. Pictures would tell others who reads.
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.disable("image")
    parser.add_render_rule("link_open", _open_link)
    return parser


_PARSER = _parser()


def render_markdown(text: str) -> SafeString:
    """Return Markdown as HTML that is safe in a page."""
    # Safe because of what `_parser` switches off.
    return SafeString(_PARSER.render(text[:MOST_CHARACTERS]))
