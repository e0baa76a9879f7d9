"""Base classes of all wire schemas: strict fields, and text that is safe to store and show."""

import re
import unicodedata
from functools import cache
from math import isfinite
from typing import Annotated, Any, Generic, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic.config import JsonDict

Item = TypeVar("Item")
# Header of a response that is a plain list: the cursor of the next page.
NEXT_CURSOR = "X-Slipway-Next-Cursor"
_DIRECTION_MARKS = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)
SLUG_PATTERN = r"[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?"


def forbidden_character(text: str, *, multiline: bool = False) -> str | None:
    """Return the first character of `text` that may not be stored, or None.

    Control characters (including NUL), lone surrogates and text-direction marks are refused.
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


# The same rules for the OpenAPI document, as regular expressions of JSON Schema. REFUSED is the
# content of a character class.
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


def line_field(pattern: str, **bounds: Any) -> Any:
    """Return the field of a `Line` with a pattern of its own, which the API's description shows.

    Without it the description would have the pattern of all lines. `bounds` are those of `Field`.
    """
    return Field(pattern=pattern, json_schema_extra={"pattern": pattern}, **bounds)


_PYTHON_PATTERN = r"^3\.\d{1,2}$"
# A minor version of Python, such as 3.12.
PythonVersion = Annotated[Line, line_field(_PYTHON_PATTERN)]


# A SHA-256 in hexadecimal digits.
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
RelativePath = Annotated[Line, Field(min_length=1, max_length=500)]


# Strict: true is not 1, and "1" is not a number. Bounds of these types appear in the OpenAPI
# document. With a validator they would not, so WholeNumbers converts 3.0 to 3, as JSON allows.
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Truth = Annotated[bool, Strict()]


def _clean_json(value: Any) -> Any:
    """Refuse values that JSON parsers accept but no writer returns unchanged."""
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            left += [*item, *item.values()]
        elif isinstance(item, list | tuple):
            left += item
        elif isinstance(item, str):
            bad = next((each for each in item if "\ud800" <= each <= "\udfff"), None)
            if bad is not None:
                raise ValueError(f"holds half a character (U+{ord(bad):04X})")
        elif isinstance(item, float) and not isfinite(item):
            raise ValueError("holds a number that is not finite, which JSON cannot carry")
        elif isinstance(item, int) and not -(2**63) <= item < 2**64:
            raise ValueError("holds a whole number of more than 64 bits")
    return value


# Any JSON value, stored and returned unchanged. NUL and control characters are data here.
JsonValue = Annotated[Any, AfterValidator(_clean_json)]
JsonObject = Annotated[dict[str, Any], AfterValidator(_clean_json)]


class WholeNumbers(BaseModel):
    """Mixin that accepts 3.0 as the integer 3, as JSON does."""

    @model_validator(mode="before")
    @classmethod
    def _accept_whole_numbers(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        names = _integer_fields(cls)
        return {
            name: _to_integer(value) if name in names else value for name, value in data.items()
        }


class RequestSchema(WholeNumbers):
    """Body of a request. An unknown field is an error, so that typing mistakes are noticed."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


@cache
def _integer_fields(schema: type[BaseModel]) -> frozenset[str]:
    """Return the integer fields, alone or in a list."""
    fields = schema.model_fields.items()
    return frozenset(name for name, field in fields if _accepts_int(field.annotation))


def _accepts_int(annotation: Any) -> bool:
    inner = get_args(annotation)
    return annotation is int or (float not in inner and any(map(_accepts_int, inner)))


def _to_integer(value: Any) -> Any:
    """Return 3.0 as the integer 3, and everything else unchanged."""
    if isinstance(value, list):
        return [_to_integer(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class AnswerSchema(BaseModel):
    """Body of a response. Clients ignore unknown fields."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class PartSchema(AnswerSchema, WholeNumbers):
    """A part of responses that clients also send in requests."""


class PageOf(AnswerSchema, Generic[Item]):
    """One page of a list, newest first. Pass `next_cursor` as `cursor` to get the next page."""

    items: list[Item]
    next_cursor: str | None = None
