"""Messages for pydantic's validation errors: no regular expressions, no names of types."""

from collections.abc import Mapping
from typing import Any, Final

from slipway.schemas.accounts import EMAIL_PATTERN
from slipway.schemas.environments import REFERENCE_PATTERN
from slipway.schemas.pipeline_references import STEP_NAME, VALUE_NAME
from slipway.schemas.tables import TYPE_PATTERN

_MAIL: Final = "an e-mail address such as ada@example.org"
_SMALL: Final = "lower-case letters, digits, dots, hyphens and underscores, at most 63 characters"
# Description of the values of each pattern in our schemas. A test checks that none is missing.
FORMS: Final[Mapping[str, str]] = {
    r"^[!-~]{1,128}$": "1 to 128 printable ASCII characters and no spaces",
    r"^[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?$": (
        "lower-case letters, digits and inner hyphens, at most 48 characters"
    ),
    r"^[/\w.\- :]+$": "letters, digits, spaces and _ - . : /",
    r"^[A-Za-z0-9+/]*={0,2}$": "base64",
    r"^[0-9]{1,18}$": "the number of a job: 1 to 18 digits",
    r"^[0-9a-f]{16,64}$": "16 to 64 hexadecimal digits",
    r"^[A-Za-z0-9._@$-]{1,64}$": "the name of an account, at most 64 characters",
    r"^[0-9a-f]{32}$": "the id of a run: 32 hexadecimal digits",
    r"^[0-9a-f]{64}$": "a SHA-256: 64 hexadecimal digits",
    r"^[0-9a-f]{40,64}$": "the full hash of a commit: 40 to 64 hexadecimal digits",
    r"^[0-9a-zA-Z_-]{1,64}$": "letters, digits, hyphens and underscores, at most 64 characters",
    r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,98}$": (
        "letters, digits, hyphens and underscores, at most 99 characters, not beginning with a "
        "hyphen"
    ),
    r"^[A-Za-z0-9](?:[A-Za-z0-9 _-]{0,38}[A-Za-z0-9])?$": (
        "letters, digits and inner spaces, hyphens and underscores, at most 40 characters"
    ),
    r"^[A-Za-z0-9_.-]+$": "letters, digits, dots, hyphens and underscores",
    r"^[A-Za-z0-9_.:-]+$": "letters, digits, dots, colons, hyphens and underscores",
    r"^[A-Za-z][A-Za-z0-9_.-]{0,39}$": (
        "a letter, then letters, digits, dots, hyphens and underscores, at most 40 characters"
    ),
    r"^[A-Za-z_][A-Za-z0-9_.-]{0,99}$": (
        "a letter, then letters, digits, dots, hyphens and underscores, at most 100 characters"
    ),
    rf"^{STEP_NAME}$": (
        "a letter, then letters, digits, hyphens and underscores, at most 48 characters"
    ),
    rf"^{VALUE_NAME}$": (
        "a letter or an underscore, then letters, digits, hyphens and underscores, at most 64 "
        "characters"
    ),
    r"^.+\.ipynb$": "a path that ends with .ipynb",
    REFERENCE_PATTERN: "the name of an environment, or name and version such as vision@3",
    TYPE_PATTERN: "a type such as string, int64, double, timestamp or decimal(10, 2)",
    r"^[^/\\]+$": "a file name without slashes",
    r"^prd_[0-9A-HJKMNP-TV-Z]{26}$": "the id of a prediction: prd_ and 26 characters",
    r"^(answered|failed|any|[45][0-9]{2})$": "answered, failed, any, or a status such as 503",
    r"^[a-z0-9][a-z0-9._-]{0,62}$": _SMALL,
    r"^[a-z0-9][a-z0-9._-]{0,62}:[1-9][0-9]{0,8}$": "a dataset version, such as digits:3",
    r"^[a-z0-9][a-z0-9._-]{0,62}(:(latest|[1-9][0-9]{0,8}))?$": (
        "a dataset, with or without a version, such as digits:3"
    ),
    r"^([01][0-9]|2[0-3]):[0-5][0-9]$": "a time of day such as 18:30",
    r"^(([01][0-9]|2[0-3]):[0-5][0-9])?$": "a time of day such as 18:30, or empty",
    r"^[a-z0-9_]{1,40}\.[0-9]{1,10}$": "a start id: a word, a dot and a number",
    r"^[^@\s]+@[^@\s]+$": _MAIL,
    EMAIL_PATTERN: _MAIL,
    r"^3\.\d{1,2}$": "a version of Python such as 3.11",
}


def describe_validation_error(entry: Mapping[str, Any]) -> str:
    """Return the message for one of `ValidationError.errors()`."""
    if entry.get("type") == "string_pattern_mismatch":
        form = FORMS.get(str((entry.get("ctx") or {}).get("pattern")))
        return "has an invalid format" + (f": expected {form}" if form else "")
    limits = entry.get("ctx") or {}
    if entry.get("type") == "too_long" and limits.get("field_type") == "Value":
        longest = limits["max_length"]
        return f"has a length of {limits['actual_length']}; at most {longest} is allowed"
    return str(entry.get("msg", "is not valid")).removeprefix("Value error, ")


def validation_predicate(entry: Mapping[str, Any]) -> str:
    """Return the same as the predicate of a sentence that begins with its subject."""
    message = describe_validation_error(entry)
    for subject in ("Input ", "String ", "Value ", "List "):
        message = message.removeprefix(subject)
    return message[:1].lower() + message[1:]
