"""What every wire schema shares: strict shapes and text that is fit to be stored and shown."""

import re
import unicodedata
from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.config import JsonDict

Item = TypeVar("Item")
_DIRECTION_MARKS = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
SLUG_PATTERN = r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?"


def forbidden_character(text: str, *, multiline: bool = False) -> str | None:
    """Return the first character of `text` that may not be stored, or None.

    Control characters (NUL included), lone surrogates and text-direction marks are refused;
    `multiline` allows tab and line breaks.
    """
    for character in text:
        if multiline and character in "\t\n\r":
            continue
        if character in _DIRECTION_MARKS or unicodedata.category(character) in ("Cc", "Cs"):
            return character
    return None


def _clean(text: str, *, multiline: bool) -> str:
    bad = forbidden_character(text, multiline=multiline)
    if bad is not None:
        raise ValueError(f"holds the character U+{ord(bad):04X}, which is not allowed")
    return unicodedata.normalize("NFC", text).strip()


def _clean_line(text: str) -> str:
    return _clean(text, multiline=False)


def _clean_text(text: str) -> str:
    return _clean(text, multiline=True)


def _clean_name(text: str) -> str:
    cleaned = _clean_line(text)
    if not cleaned:
        raise ValueError("is empty")
    if len(cleaned) > 100:
        raise ValueError(f"has {len(cleaned)} characters; at most 100 are allowed")
    return cleaned


def _clean_slug(text: str) -> str:
    if not re.fullmatch(SLUG_PATTERN, text):
        raise ValueError(
            "must be 1 to 48 lower-case letters, digits and hyphens, "
            "neither starting nor ending with a hyphen"
        )
    return text


# The same rules for readers of the API's description, as JSON Schema's regular expressions.
# REFUSED is the inside of a character class.
_MARKS = r"\u061C\u200E\u200F\u202A-\u202E\u2066-\u2069"
REFUSED = rf"\u0000-\u001F\u007F-\u009F{_MARKS}"
LINE_PATTERN = f"^[^{REFUSED}]*$"
_TEXT_PATTERN = rf"^[^\u0000-\u0008\u000B\u000C\u000E-\u001F\u007F-\u009F{_MARKS}]*$"
_NAME_SCHEMA: JsonDict = {
    "minLength": 1,
    "maxLength": 100,
    "pattern": rf"^[^{REFUSED}]*[^\s{REFUSED}][^{REFUSED}]*$",
}

Line = Annotated[
    str, AfterValidator(_clean_line), Field(json_schema_extra={"pattern": LINE_PATTERN})
]
Text = Annotated[
    str, AfterValidator(_clean_text), Field(json_schema_extra={"pattern": _TEXT_PATTERN})
]
Name = Annotated[str, AfterValidator(_clean_name), Field(json_schema_extra=_NAME_SCHEMA)]
Slug = Annotated[
    str, AfterValidator(_clean_slug), Field(json_schema_extra={"pattern": f"^{SLUG_PATTERN}$"})
]


def _refuse_truth_value(value: object) -> object:
    """Refuse true and false, which Python would take for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError("is true or false, and has to be a number")
    return value


Whole = Annotated[int, BeforeValidator(_refuse_truth_value)]


class RequestSchema(BaseModel):
    """Body of a request: an unknown field is an error, so that a typing slip is not ignored."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class AnswerSchema(BaseModel):
    """Body of an answer; clients ignore fields they do not know yet."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class PageOf(AnswerSchema, Generic[Item]):
    """One page of a list, newest first. Hand `next_cursor` back as `cursor` for the next page."""

    items: list[Item]
    next_cursor: str | None = None
