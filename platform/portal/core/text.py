"""Validation of names and URL parts from outside, for forms and services.

The API's schemas validate with the same functions (`slipway.schemas.base`).
"""

import re
import unicodedata
from datetime import timedelta
from typing import Any

import orjson

from portal.core.errors import InvalidInput
from slipway.schemas.base import SLUG_PATTERN, forbidden_character

# JSON may contain lone surrogates as escapes. UTF-8, and so a page or a database, may not.
_HALVES = re.compile("[\ud800-\udfff]")
_SLUG = re.compile(rf"\A{SLUG_PATTERN}\Z")


def clean_name(text: str, *, field: str = "name", max_length: int = 100) -> str:
    """Return `text` stripped and in Unicode's NFC form, fit to be a name that people read.

    Raises InvalidInput when it is empty, too long, or holds a forbidden character.
    """
    bad = forbidden_character(text)
    if bad is not None:
        raise InvalidInput(
            f"The {field} contains the character U+{ord(bad):04X}, which is not allowed.",
            field=field,
            next_step="Remove control characters and text-direction marks.",
        )
    cleaned = unicodedata.normalize("NFC", text).strip()
    if not cleaned:
        raise InvalidInput(f"The {field} is empty.", field=field, next_step="Enter a name.")
    if len(cleaned) > max_length:
        raise InvalidInput(
            f"The {field} has {len(cleaned)} characters; at most {max_length} are allowed.",
            field=field,
            next_step="Shorten it.",
        )
    return cleaned


def forbidden_in_text(text: str, *, field: str) -> None:
    """Raise InvalidInput if a text of several lines has a character that may not be stored."""
    bad = forbidden_character(text, multiline=True)
    if bad is not None:
        raise InvalidInput(
            f"The {field} contains the character U+{ord(bad):04X}, which is not allowed.",
            field=field,
            next_step="Remove control characters and text-direction marks.",
        )


def clean_slug(text: str, *, field: str = "slug") -> str:
    """Return `text` if it is a valid slug. Raise InvalidInput otherwise."""
    if not _SLUG.match(text):
        raise InvalidInput(
            f"The {field} must be 1 to 48 lower-case letters, digits and hyphens, "
            "and neither start nor end with a hyphen.",
            field=field,
            next_step="For example: churn-model.",
        )
    return text


def size_text(size_bytes: int) -> str:
    """Format a number of bytes: `12 bytes`, `64 KiB`, `1.5 GiB`."""
    for unit, name in ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{size_bytes} {'byte' if size_bytes == 1 else 'bytes'}"


def slug_from(name: str) -> str:
    """Suggest a slug for a name. It is empty when the name has no Latin letter or digit."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:48].strip("-")


def whole_characters(text: str) -> str:
    """Return text encodable in UTF-8: lone surrogates are replaced by U+FFFD."""
    return text if text.isascii() else _HALVES.sub("\ufffd", text)


def json_bytes(value: Any) -> bytes:
    """Return `value` as JSON. Other types become text, and lone surrogates U+FFFD."""
    try:
        return orjson.dumps(value, default=str)
    except orjson.JSONEncodeError:
        return orjson.dumps(_replace_surrogates(value), default=str)


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return whole_characters(value)
    if isinstance(value, dict):
        return {
            _replace_surrogates(name): _replace_surrogates(part) for name, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_replace_surrogates(part) for part in value]
    return value


def span_text(span: timedelta) -> str:
    """Format a time for a sentence: `45 s`, `1 min 20 s`, `2 h 5 min`."""
    seconds = max(0, round(span.total_seconds()))
    hours, minutes, rest = seconds // 3600, seconds // 60 % 60, seconds % 60
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    return f"{rest} s"
