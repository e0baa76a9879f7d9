"""Values of steps: their types by annotations, and their form as parameters. Standard library."""

import dataclasses
import json
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Output of a step that returns one value.
RESULT = "result"
FILES = "runs:/"
_TYPES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    tuple: "array",
    dict: "object",
}


def type_of_hint(hint: Any) -> str:
    """Return the type of a value by its annotation, "any" where that does not say."""
    hint = _without_none(hint)
    origin = typing.get_origin(hint) or hint
    if isinstance(origin, type):
        if issubclass(origin, Path):
            return "file"
        if issubclass(origin, Mapping):
            return "object"
        if issubclass(origin, Sequence) and origin is not str:
            return "array"
    return _TYPES.get(origin, "any")


def outputs_of_hint(hint: Any) -> dict[str, str]:
    """Return the outputs of a function, with types, by the annotation of what it returns.

    The fields of a NamedTuple, dataclass or TypedDict are outputs each. Everything else is one
    output, `result`. Without an annotation, or with None, there are none.
    """
    if hint is None or hint is type(None):
        return {}
    if is_record(hint):
        return {name: type_of_hint(kind) for name, kind in typing.get_type_hints(hint).items()}
    return {RESULT: type_of_hint(hint)}


def is_record(hint: Any) -> bool:
    """Return whether an annotation has fields, which are outputs of their own."""
    is_tuple = isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")
    return is_tuple or dataclasses.is_dataclass(hint) or typing.is_typeddict(hint)


def outputs_of_result(result: Any, hint: Any) -> dict[str, Any]:
    """Return what a function has returned as outputs. Raises TypeError if they do not fit."""
    names = outputs_of_hint(hint)
    if not names:
        return {}
    if not is_record(hint):
        return {RESULT: result}
    if isinstance(result, Mapping):
        values = dict(result)
    elif hasattr(result, "_asdict"):
        values = result._asdict()
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        values = {name: getattr(result, name) for name in names}
    else:
        raise TypeError(f"it returned {type(result).__name__}, not {hint.__name__}")
    missing = [name for name in names if name not in values]
    if missing:
        raise TypeError(f"it returned no {missing[0]}")
    return {name: values[name] for name in names}


def parsed(text: str, hint: Any) -> Any:
    """Return the value of a parameter, which jobs get as text. Raises ValueError.

    Files stay as they are: `runs:/RUN/path`.
    """
    kind = type_of_hint(hint)
    if kind in ("string", "file"):
        return text
    try:
        value = json.loads(text)
    except ValueError:
        if kind == "any":
            return text
        raise ValueError(f"is {text[:80]!r}, not a value of type {kind}") from None
    return float(value) if kind == "number" and isinstance(value, int) else value


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else Any
    return hint
