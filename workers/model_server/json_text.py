"""Reading JSON that strangers wrote: strict, bounded in depth, with errors that help."""

import json
from collections.abc import Iterable
from typing import Any, Final

import orjson

from slipway.schemas.problem import FieldError
from slipway.schemas.serving import FieldSpec
from workers.model_server.arrays import fits
from workers.model_server.errors import BadInput

# As many digits as the shortest integer that does not fit into 64 bits.
_LONG: Final = b"0" * 19
_AS_ZEROS: Final = bytes.maketrans(b"123456789", b"0" * 9)
SCORING_KEYS: Final = ("dataframe_split", "dataframe_records", "instances", "inputs")


def read_object(text: bytes) -> dict[str, Any]:
    """Return a JSON object. Raises BadInput for anything else, including nesting over 1000."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if b"NaN" in text or b"Infinity" in text:
            raise BadInput(
                "The body contains NaN or Infinity, which JSON does not support.",
                next_step="Send null for a missing number.",
            ) from None
        raise BadInput(f"The body is not JSON: {error.msg} at byte {error.pos}.") from None
    if not isinstance(document, dict):
        raise BadInput(
            "The body is not a JSON object.",
            next_step=f"Send an object with one of {', '.join(SCORING_KEYS)}.",
        )
    if _LONG in text.translate(_AS_ZEROS):
        return _with_long_integers(text)
    return document


def _with_long_integers(text: bytes) -> dict[str, Any]:
    """Return JSON with integers above 64 bits, which orjson reads as floats and so rounds."""
    try:
        value: dict[str, Any] = json.loads(text)
    except RecursionError:
        raise BadInput(
            "The body is nested too deeply for integers with that many digits."
        ) from None
    return value


def read_scoring(text: bytes) -> tuple[str, Any, dict[str, Any]]:
    """Return the key of SCORING_KEYS in a body, its value, and the params. Raises BadInput."""
    values = read_object(text)
    params = values.pop("params", None)
    keys = [key for key in SCORING_KEYS if key in values]
    if len(keys) != 1:
        join = ", ".join(repr(key)[:40] for key in list(values)[:5]) or "nothing"
        raise BadInput(
            f"The body has {join}.", next_step=f"Send exactly one of {', '.join(SCORING_KEYS)}."
        )
    if params is not None and not isinstance(params, dict):
        raise BadInput("`params` is not an object.")
    return keys[0], values[keys[0]], params or {}


def check_params(params: dict[str, Any], specs: list[FieldSpec], names: Iterable[str] = ()) -> None:
    """Raise BadInput for params the signature does not know, or of another type.

    `names` are known ones, too, whose types are checked elsewhere.
    """
    known = {spec.name: spec for spec in specs}
    for name, value in params.items():
        if name not in known:
            raise BadInput(
                f"Unknown param {name!r}.",
                [FieldError(field=f"params.{name}", message="unknown")],
                f"Known params: {', '.join([*known, *names]) or 'none'}.",
            )
        spec = known[name]
        if not all(fits(item, spec.datatype) for item in _items(value)):
            message = f"is {str(value)[:60]!r}; {spec.datatype.value} was expected"
            raise BadInput(
                f"Param {name!r} {message}.", [FieldError(field=f"params.{name}", message=message)]
            )


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
