"""Cells of a notebook rendered as plain text and pictures, never as HTML of their author."""

import re
from collections.abc import Iterator
from typing import Any

from slipway.schemas.truncation import shorten

MOST_LINES = 2000
_MOST_CHARACTERS = 2000
_MOST_PICTURES = 20
_MOST_PICTURE_CHARACTERS = 2_000_000
_PICTURES = ("image/png", "image/jpeg", "image/gif")
_BASE64 = re.compile(r"\A[A-Za-z0-9+/]+={0,2}\Z")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")


def lines_of(text: Any) -> list[str]:
    """Return text of a notebook (a string or a list of them) in lines.

    Of long ones the beginning, and how much there was.
    """
    whole = "".join(map(str, text)) if isinstance(text, list) else str(text or "")
    lines = whole.splitlines()
    shown_lines = [shorten(_ESCAPES.sub("", line), _MOST_CHARACTERS) for line in lines[:MOST_LINES]]
    return shown_lines + _omission_note(len(lines) - MOST_LINES, "lines")


def _omission_note(count: int, noun: str) -> list[str]:
    return (
        [f"[{count:,} more {noun} are not shown here; the notebook has them]"] if count > 0 else []
    )


def render_outputs(cell: Any) -> tuple[list[str], list[str]]:
    """Return what the results of a cell show: text in lines, and pictures as data addresses."""
    lines: list[str] = []
    pictures: list[str] = []
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        if not isinstance(output, dict):
            continue
        kind = output.get("output_type")
        if kind == "stream":
            lines += lines_of(output.get("text"))
        elif kind == "error":
            lines += lines_of(f"{output.get('ename')}: {output.get('evalue')}")
        elif isinstance(output.get("data"), dict):
            data = output["data"]
            items = [*pictures_of(data)]
            pictures += items
            if not items:
                lines += lines_of(data.get("text/plain")) or [f"({', '.join(map(str, data))})"]
    notes = _omission_note(len(lines) - MOST_LINES - 1, "lines")
    notes += _omission_note(len(pictures) - _MOST_PICTURES, "pictures")
    return lines[: MOST_LINES + 1] + notes, pictures[:_MOST_PICTURES]


def pictures_of(data: dict[str, Any]) -> Iterator[str]:
    """Yield the picture of a result as a `data:` address, if it has one that may be shown."""
    for mime in _PICTURES:
        text = data.get(mime)
        joined = "".join(map(str, text)) if isinstance(text, list) else str(text or "")
        plain = "".join(joined[: 2 * _MOST_PICTURE_CHARACTERS].split())
        if plain and len(plain) <= _MOST_PICTURE_CHARACTERS and _BASE64.match(plain):
            yield f"data:{mime};base64,{plain}"
            return
