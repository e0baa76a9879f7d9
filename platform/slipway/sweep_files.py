"""Sweeps described in YAML: our keys, and those of W&B that have a meaning here."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from slipway.errors import InvalidInput
from slipway.parameter_spaces import (
    bad_space,
    is_range,
    make_space,
    parse_constraint,
    parse_metric,
    parse_space,
)
from slipway.sanitize import visible
from slipway.schemas.sweeps import Constraint, Metric, ParameterSpace

_METHODS = {
    "random": "random",
    "grid": "grid",
    "bayes": "tpe",
    "tpe": "tpe",
    "tpe-multivariate": "tpe-multivariate",
    "qmc": "qmc",
    "cma-es": "cma-es",
    "gp": "gp",
    "nsga-ii": "nsga-ii",
}
_GOALS = {"maximize": "max", "minimize": "min", "max": "max", "min": "min"}
# They name a place at W&B, or are notes for people.
_IGNORED = ("project", "entity", "description")
_KEYS = (
    *("program", "method", "metric", "parameters", "name", "run_cap", "trials", "parallel"),
    *("retries", "seed", "scheduler", "min_values", "eta", "early_terminate", "command", *_IGNORED),
    *("metrics", "constraints", "warm_start"),
)
_MACROS = ("${env}", "${interpreter}", "${program}", "${args}")
_MAX_BYTES = 1_000_000
_MOST_ROUNDS = 20


@dataclass(frozen=True)
class SweepFile:
    """The content of a file. What it does not say is None or empty."""

    script: str | None = None
    name: str | None = None
    algorithm: str | None = None
    metrics: tuple[Metric, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    warm_start: tuple[str, ...] = ()
    parameters: dict[str, ParameterSpace] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    trials: int | None = None
    parallel: int | None = None
    retries: int | None = None
    seed: int | None = None
    scheduler: str | None = None
    min_values: int | None = None
    eta: int | None = None
    ignored: tuple[str, ...] = ()


def read_sweep_file(path: str | Path) -> SweepFile:
    """Read a YAML file. Raises InvalidInput that names the key which has no meaning here."""
    content = _load(Path(path).expanduser())
    unknown = [str(key) for key in content if key not in _KEYS]
    if unknown:
        raise _bad_key(unknown[0], "is not supported", "Remove it.")
    if tuple(content.get("command") or _MACROS) != _MACROS:
        raise _bad_key(
            "command",
            "differs from the usual one",
            "Remove it: a trial is `python PROGRAM --name=value …`.",
        )
    spaces, params = _parameters(content.get("parameters"))
    early = _early_terminate(content.get("early_terminate"))
    return SweepFile(
        script=_text(content, "program"),
        name=_text(content, "name"),
        algorithm=_algorithm(content.get("method")),
        metrics=_metrics(content),
        constraints=tuple(map(parse_constraint, _texts(content, "constraints"))),
        warm_start=tuple(_texts(content, "warm_start")),
        parameters=spaces,
        params=params,
        trials=_number(content, "trials") or _number(content, "run_cap"),
        parallel=_number(content, "parallel"),
        retries=_number(content, "retries"),
        seed=_number(content, "seed"),
        scheduler=_text(content, "scheduler") or ("asha" if early else None),
        min_values=_number(content, "min_values") or early.get("min_iter"),
        eta=_number(content, "eta") or early.get("eta"),
        ignored=tuple(key for key in _IGNORED if key in content),
    )


def _load(path: Path) -> dict[Any, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise _unreadable(path, "it is larger than 1 MB")
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from None
    except (UnicodeDecodeError, RecursionError, ValueError):
        raise _unreadable(path, "it is not YAML in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise _unreadable(path, f"it is not valid YAML{line}") from None
    if not isinstance(content, dict):
        raise _unreadable(path, "it has no keys such as program and parameters")
    return content


def _parameters(value: object) -> tuple[dict[str, ParameterSpace], dict[str, str]]:
    if value is None:
        return {}, {}
    if not isinstance(value, Mapping):
        raise _bad_key("parameters", "is no mapping", "Write NAME: {min: 0, max: 1} below it.")
    spaces: dict[str, ParameterSpace] = {}
    params: dict[str, str] = {}
    for key, fields in value.items():
        name = str(key)
        if isinstance(fields, str) and is_range(fields):
            spaces[name] = parse_space(name, fields)
        elif not isinstance(fields, Mapping):
            raise bad_space(name, "it is neither a range nor a mapping with values, min or max.")
        elif "value" in fields:
            params[name] = str(fields["value"])
        else:
            spaces[name] = _space(name, fields)
    return spaces, params


def _space(name: str, fields: Mapping[Any, Any]) -> ParameterSpace:
    kind = fields.get("distribution") or _guessed(fields)
    known = {"distribution", "values", "min", "max", "q", "when"}
    unknown = [str(key) for key in fields if key not in known]
    if unknown:
        raise bad_space(name, f"{visible(unknown[0][:80])} is not supported.")
    if kind not in _DISTRIBUTIONS:
        raise bad_space(name, f"the distribution {visible(str(kind)[:80])} is not supported.")
    try:
        made = _DISTRIBUTIONS[kind](fields)
        when = {
            str(other): [str(each) for each in (values if isinstance(values, list) else [values])]
            for other, values in (fields.get("when") or {}).items()
        }
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
        raise bad_space(name, f"{kind} does not have the numbers it needs.") from None
    return make_space(name, made | {"when": when})


def _guessed(fields: Mapping[Any, Any]) -> str:
    """Return the distribution that W&B takes for a parameter which names none."""
    if "values" in fields:
        return "categorical"
    ends = [fields.get("min"), fields.get("max")]
    return "int_uniform" if all(type(end) is int for end in ends) else "uniform"


def _categorical(fields: Mapping[Any, Any]) -> dict[str, Any]:
    values = fields["values"]
    if not isinstance(values, list):
        raise TypeError
    return {"type": "choice", "choices": [str(value) for value in values]}


def _between(
    kind: str, *, log: bool = False, stepped: bool = False
) -> Callable[[Mapping[Any, Any]], dict[str, Any]]:
    def made(fields: Mapping[Any, Any]) -> dict[str, Any]:
        low, high = float(fields["min"]), float(fields["max"])
        space: dict[str, Any] = {"type": kind, "low": low, "high": high, "log": log}
        return space | ({"step": float(fields.get("q", 1))} if stepped else {})

    return made


def _exponents(fields: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the range of `log_uniform`, whose ends are exponents of e."""
    low, high = math.exp(float(fields["min"])), math.exp(float(fields["max"]))
    return {"type": "float", "low": low, "high": high, "log": True}


_DISTRIBUTIONS: Mapping[Any, Callable[[Mapping[Any, Any]], dict[str, Any]]] = {
    "categorical": _categorical,
    "uniform": _between("float"),
    "q_uniform": _between("float", stepped=True),
    "int_uniform": _between("int"),
    "log_uniform_values": _between("float", log=True),
    "log_uniform": _exponents,
}


def _algorithm(value: object) -> str | None:
    if value is None:
        return None
    if str(value) not in _METHODS:
        raise _bad_key(
            "method", f"is {visible(str(value)[:80])}", f"Use one of {', '.join(_METHODS)}."
        )
    return _METHODS[str(value)]


def _metrics(content: Mapping[Any, Any]) -> tuple[Metric, ...]:
    """Return what `metric`, or the list `metrics`, names."""
    several = content.get("metrics")
    if several is None:
        several = [] if content.get("metric") is None else [content["metric"]]
    elif not isinstance(several, list) or "metric" in content:
        raise _bad_key("metrics", "is no list, or beside metric", "Use one of them.")
    return tuple(map(_metric, several))


def _metric(value: object) -> Metric:
    if isinstance(value, str):
        return parse_metric(value)
    if not isinstance(value, Mapping) or set(value) - {"name", "goal"} or "name" not in value:
        raise _bad_key("metric", "has other keys than name and goal", "Remove them.")
    goal = str(value.get("goal", "minimize"))
    return parse_metric(f"{value['name']}:{_GOALS.get(goal, goal)}")


def _early_terminate(value: object) -> dict[str, int]:
    """Return `min_iter` and `eta` of W&B's Hyperband, which is ASHA with one bracket.

    W&B names the first comparison, or the last one and the number `s` of those before it.
    """
    if value is None:
        return {}
    known = {"type", "min_iter", "max_iter", "s", "eta"}
    if not isinstance(value, Mapping) or set(value) - known or value.get("type") != "hyperband":
        raise _bad_key(
            "early_terminate",
            "is not {type: hyperband, min_iter: …, eta: …}",
            "Remove its other keys, or use scheduler, min_values and eta.",
        )
    eta = _number(value, "eta") or 3
    first, last = _number(value, "min_iter"), _number(value, "max_iter")
    if first is None:
        if last is None:
            raise _bad_key("early_terminate", "has no min_iter", "Add min_iter: 3.")
        first = max(1, last // eta ** min(_number(value, "s") or 0, _MOST_ROUNDS))
    return {"min_iter": first, "eta": eta}


def _text(content: Mapping[Any, Any], key: str) -> str | None:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise _bad_key(key, "is no text", "Write it in quotes.")
    return value


def _texts(content: Mapping[Any, Any], key: str) -> list[str]:
    values = content.get(key) or []
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise _bad_key(key, "is no list of texts", "Write one text a line, each after a dash.")
    return values


def _number(content: Mapping[Any, Any], key: str) -> int | None:
    value = content.get(key)
    if value is not None and type(value) is not int:
        raise _bad_key(key, "is no whole number", "Write it like 20.")
    return value


def _bad_key(key: str, reason: str, next_step: str) -> InvalidInput:
    return InvalidInput(
        f"{visible(key[:80])} of the sweep file {reason}.",
        code="bad_sweep_file",
        field=key[:80],
        next_step=next_step,
    )


def _unreadable(path: Path, reason: str) -> InvalidInput:
    return InvalidInput(
        f"The sweep file {visible(str(path))} cannot be read: {reason}.",
        code="bad_sweep_file",
        field="file",
        next_step="Name a YAML file, as docs/sweeps.md describes it.",
    )
