"""Text from a server made safe to show: nothing in it can drive a terminal."""

import re

_LINE = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_KEPT_IN_TEXT = "\n\t"


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def _escape_in_text(match: re.Match[str]) -> str:
    return match.group() if match.group() in _KEPT_IN_TEXT else _escape(match)


def visible(text: str, *, multiline: bool = False) -> str:
    """Return `text` with control characters and text-direction marks written as escapes.

    `multiline` keeps tabs and line feeds as they are.
    """
    return _LINE.sub(_escape_in_text if multiline else _escape, text)
