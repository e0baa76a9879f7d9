"""Full-text search over the documentation, in memory: there are a few hundred sections."""

import re
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from portal.web.docs.markdown_pages import RenderedPage, Section, all_pages

MOST_HITS = 20
_EXCERPT = 160
_WORD = re.compile(r"[\w.:-]+")


@dataclass(frozen=True)
class DocsHit:
    """A section that contains every word of a query."""

    page: RenderedPage
    section: Section
    excerpt: SafeString


def search_docs(query: str) -> list[DocsHit]:
    """Return the sections with all words of `query`, best first: titles count more than text."""
    words = [word.lower() for word in _WORD.findall(query)]
    if not words:
        return []
    ranked = []
    for order, page in enumerate(all_pages()):
        for section in page.sections:
            score = _score(words, page, section)
            if score:
                ranked.append((-score, order, page, section))
    ranked.sort(key=lambda entry: entry[:2])
    return [
        DocsHit(page, section, _excerpt(section.text, words))
        for _, _, page, section in ranked[:MOST_HITS]
    ]


def _score(words: list[str], page: RenderedPage, section: Section) -> int:
    """Return 0 where a word is missing."""
    page_title, title, text = page.title.lower(), section.title.lower(), section.text.lower()
    # Release notes and descriptions of the inside name every feature, and explain few.
    weight = 1 if page.slug == "changelog" or page.slug.startswith("architecture") else 4
    score = 0
    for word in words:
        in_text = min(text.count(word), 5)
        in_titles = 20 * (word in title) + 10 * (word in page_title)
        if not in_text and not in_titles:
            return 0
        score += in_text + in_titles
    return score * weight


def _excerpt(text: str, words: list[str]) -> SafeString:
    """Return the text around the first word, with the words marked."""
    plain = " ".join(text.split())
    positions = [at for word in words if (at := plain.lower().find(word)) >= 0]
    start = max(min(positions, default=0) - _EXCERPT // 3, 0)
    start = plain.rfind(" ", 0, start) + 1 if start else 0
    end = plain.find(" ", start + _EXCERPT)
    part = plain[start:] if end < 0 else f"{plain[start:end]} …"
    pattern = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pieces = re.split(f"({pattern})", part, flags=re.IGNORECASE)
    # re.split puts the matches at the odd positions.
    marked = (
        format_html("<mark>{}</mark>", piece) if position % 2 else piece
        for position, piece in enumerate(pieces)
    )
    return format_html_join("", "{}", ((piece,) for piece in marked))
