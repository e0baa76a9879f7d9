"""Ranges, metrics and constraints as text: `choice(2,4,8)`, `loss:min`, `size<=20`."""

import re
from collections.abc import Callable, Mapping

from pydantic import ValidationError

from slipway.errors import InvalidInput
from slipway.sanitize import visible
from slipway.schemas.sweeps import Constraint, Metric, ParameterSpace

EXAMPLES = (
    "Write uniform(0,1), loguniform(1e-4,1e-1), int(1,8), logint(1,1024) or choice(2,4,8), with a "
    "step as uniform(0,1,0.1), with a condition as uniform(0,1) if optimizer=sgd."
)
_RANGE = re.compile(
    r"\s*(?P<kind>[a-z]+)\((?P<items>.*)\)(?:\s+if\s+(?P<name>[^=\s]+)=(?P<values>.+))?\s*",
    re.DOTALL,
)


_BOUND = re.compile(r"\s*(?P<metric>.*?)\s*(?P<op><=|>=)\s*(?P<bound>\S+)\s*", re.DOTALL)


def is_range(text: str) -> bool:
    """Return whether a text looks like a range, and not like a plain value."""
    match = _RANGE.fullmatch(text)
    return match is not None and match["kind"] in _KINDS


def parse_space(name: str, text: str) -> ParameterSpace:
    """Parse a range such as `int(1,8)`. Raises InvalidInput that names the parameter."""
    try:
        return read_space(text)
    except ValueError as error:
        raise bad_space(name, str(error)) from None


def read_space(text: str) -> ParameterSpace:
    """Parse a range such as `int(1,8)`. Raises ValueError whose text is a sentence."""
    match = _RANGE.fullmatch(text)
    if match is None or match["kind"] not in _KINDS:
        raise ValueError(f"{visible(text[:80])} is no range.")
    items = [item.strip() for item in match["items"].split(",")]
    try:
        fields = _KINDS[match["kind"]](items if match["items"].strip() else [])
    except ValueError:
        raise ValueError(f"{visible(text[:80])} does not have two numbers.") from None
    if match["name"]:
        fields["when"] = {match["name"]: match["values"].strip().split("|")}
    return _checked(fields)


def make_space(name: str, fields: Mapping[str, object]) -> ParameterSpace:
    """Return the checked space of a parameter. Raises InvalidInput that names it."""
    try:
        return _checked(fields)
    except ValueError as error:
        raise bad_space(name, str(error)) from None


def _checked(fields: Mapping[str, object]) -> ParameterSpace:
    try:
        return ParameterSpace.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        reason = first["msg"].removeprefix("Value error, ")
        raise ValueError(f"{place}: {reason}." if place else f"{reason}.") from None


def parse_metric(text: str) -> Metric:
    """Parse `accuracy:max` or `loss:min`. Raises InvalidInput."""
    try:
        return read_metric(text)
    except ValueError as error:
        raise InvalidInput(
            str(error),
            field="metric",
            next_step="Write --metric accuracy:max or --metric loss:min.",
        ) from None


def read_metric(text: str) -> Metric:
    """Parse `accuracy:max` or `loss:min`. Raises ValueError with the reason."""
    name, colon, goal = text.rpartition(":")
    if not colon or goal not in ("min", "max") or not name:
        raise ValueError(f"The metric {visible(text[:80])} has no goal.")
    try:
        return Metric.model_validate({"name": name, "goal": goal})
    except ValidationError:
        raise ValueError(
            "The name of the metric is too long or has characters that are not allowed."
        ) from None


def parse_constraint(text: str) -> Constraint:
    """Parse `latency_ms<=20` or `recall>=0.9`. Raises InvalidInput."""
    try:
        return read_constraint(text)
    except ValueError as error:
        raise InvalidInput(
            str(error),
            field="constraints",
            next_step="Write --constraint 'latency_ms<=20' or --constraint 'recall>=0.9'.",
        ) from None


def read_constraint(text: str) -> Constraint:
    """Parse `latency_ms<=20` or `recall>=0.9`. Raises ValueError with the reason."""
    match = _BOUND.fullmatch(text)
    try:
        return Constraint.model_validate(
            {**match.groupdict(), "bound": float(match["bound"])} if match else {}
        )
    except ValueError:  # pydantic's ValidationError is one, too
        raise ValueError(f"The constraint {visible(text[:80])} is no bound of a metric.") from None


def bad_space(name: str, reason: str) -> InvalidInput:
    """Return the error of a range that cannot be used."""
    return InvalidInput(
        f"Parameter {visible(name[:80])}: {reason}",
        code="bad_range",
        field=f"parameters.{name[:80]}",
        next_step=EXAMPLES,
    )


def _float(items: list[str]) -> dict[str, object]:
    low, high, *step = map(float, items)
    return {"type": "float", "low": low, "high": high} | _step(step)


def _log_float(items: list[str]) -> dict[str, object]:
    low, high = map(float, items)
    return {"type": "float", "low": low, "high": high, "log": True}


def _int(items: list[str]) -> dict[str, object]:
    low, high, *step = map(float, items)
    return {"type": "int", "low": low, "high": high} | _step(step)


def _log_int(items: list[str]) -> dict[str, object]:
    low, high = map(float, items)
    return {"type": "int", "low": low, "high": high, "log": True}


def _choice(items: list[str]) -> dict[str, object]:
    return {"type": "choice", "choices": items}


def _step(step: list[float]) -> dict[str, object]:
    if len(step) > 1:
        raise ValueError("too many numbers")
    return {"step": step[0]} if step else {}


_KINDS: Mapping[str, Callable[[list[str]], dict[str, object]]] = {
    "uniform": _float,
    "loguniform": _log_float,
    "int": _int,
    "logint": _log_int,
    "choice": _choice,
}
