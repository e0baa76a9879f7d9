"""Shortening of text for people, with the number of omitted characters."""

import hashlib
from collections.abc import Sequence


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of a text, with its original length if it is cut."""
    if len(text) <= limit:
        return text
    return _cut(text, limit, f" … (the beginning of {len(text):,} characters)")


def shorten_name(name: str, limit: int) -> str:
    """Return at most `limit` characters of a name, with a unique digest if it is cut."""
    if len(name) <= limit:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return _cut(name, limit, f" … (the beginning of {len(name):,} characters, SHA-256 {digest})")


def join_names(names: Sequence[str], most: int) -> str:
    """Return the first `most` names as a list in a sentence, and the number of the others."""
    others = len(names) - most
    return ", ".join(names[:most]) + (f" and {others} more" if others > 0 else "")


def _cut(text: str, limit: int, note: str) -> str:
    return text[: max(0, limit - len(note))] + note[-limit:]
