"""The pages people read, their links and headings, and the snippets in them."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.live import ROOT

_FENCE = re.compile(r"^( *)(`{3,})(\w*)[^\n]*\n(.*?)^\1\2 *$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """A fenced block: its page, the line it begins in, its language, what it says."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@cache
def pages() -> dict[str, str]:
    """Return the text of every page that is written by hand, by its path from the root."""
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/README.md")]
    paths.append(ROOT / "bench" / "RESULTS.md")
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(paths)
    }


def snippets_of(page: str) -> Iterator[Snippet]:
    """Yield the snippets of a page."""
    text = pages()[page]
    for match in _FENCE.finditer(text):
        indent = len(match[1])
        body = "".join(line[indent:] for line in match[4].splitlines(keepends=True))
        yield Snippet(page, text[: match.start()].count("\n") + 1, match[3], body)


def every_snippet() -> list[Snippet]:
    """Return the snippets of all pages."""
    return [snippet for page in pages() for snippet in snippets_of(page)]


def links_of(text: str) -> list[str]:
    """Return where the links of a page lead; what stands in snippets is no link."""
    prose = re.sub(r"`[^`\n]*`", "", _FENCE.sub("", text))
    return _LINK.findall(prose)


def anchors_of(text: str) -> set[str]:
    """Return the anchors of a page's headings, as forges make them."""
    anchors: set[str] = set()
    for heading in _HEADING.findall(_FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        anchors.add(anchor)
    return anchors


def read(path: Path) -> str:
    """Return the text of a file."""
    return path.read_text(encoding="utf-8")
