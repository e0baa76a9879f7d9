"""References in the parameters that a schedule gives to its pipeline. No I/O.

    ${schedule.time}        the time that the run is for, in ISO 8601 and UTC
    ${event.NAME}           a value of the event that a trigger reacts to, such as ${event.version}
    ${event.body.NAME}      a value of the JSON that a webhook was called with, however deep

A text that is one reference alone has the value of it, whatever its type. Within a longer text a
value that is no text is written as JSON. A parameter whose reference has no value is left out, so
that the default of the pipeline applies.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from slipway.schemas.pipeline_references import PipelineError, as_text
from slipway.schemas.pipelines import PipelineIn
from slipway.schemas.triggers import EVENT_SAMPLES

_MARK = re.compile(r"\$\{([^{}]*)\}")
_TIME = "schedule.time"
_EVENT = "event."
_BODY = "event.body"
_TIME_SAMPLE = "2026-11-30T02:00:00Z"
# Values of types, for what a webhook may bring.
_OF_TYPES: Mapping[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1.5,
    "boolean": True,
    "array": [1],
    "object": {},
    "any": "text",
}


class _NoValue(Exception):
    """A reference has no value in this run."""


def sample_parameters(
    pipeline: PipelineIn, parameters: Mapping[str, Any], event: str = ""
) -> dict[str, Any]:
    """Return parameters as a run could have them, to check their types.

    `event` is the kind of event that starts the schedule, "" for times. Raises PipelineError for
    what is no reference.
    """
    known = {f"{_EVENT}{name}": value for name, value in EVENT_SAMPLES.get(event, {}).items()}
    known[_TIME] = _TIME_SAMPLE
    samples: dict[str, Any] = {}
    for name, value in parameters.items():
        parameter = pipeline.parameters.get(name)
        of_type = _OF_TYPES["any" if parameter is None else parameter.type]

        def lookup(path: str, name: str = name, of_type: Any = of_type) -> Any:
            if path.startswith(f"{_BODY}.") and _BODY in known:
                return of_type
            if path not in known:
                raise _unknown(path, name, known)
            return known[path]

        samples[name] = _substitute(value, lookup)
    return samples


def resolved_references(parameters: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the values of their references, without those that have none."""

    def lookup(path: str) -> Any:
        current: Any = values
        for part in path.split("."):
            if not isinstance(current, Mapping) or part not in current:
                raise _NoValue
            current = current[part]
        return current

    resolved: dict[str, Any] = {}
    for name, value in parameters.items():
        try:
            resolved[name] = _substitute(value, lookup)
        except _NoValue:
            continue
    return resolved


def _unknown(path: str, name: str, known: Iterable[str]) -> PipelineError:
    names = ", ".join(f"${{{item}}}" for item in sorted(known))
    return PipelineError(
        f"${{{path[:80]}}} has no meaning in the parameters of this schedule.",
        field=f"parameters.{name}",
        next_step=f"Write a value, or one of {names}.",
    )


def _substitute(value: Any, lookup: Any) -> Any:
    if isinstance(value, dict):
        return {key: _substitute(item, lookup) for key, item in value.items()}
    if isinstance(value, list):
        return [_substitute(item, lookup) for item in value]
    if not isinstance(value, str):
        return value
    whole = _MARK.fullmatch(value)
    if whole:
        return lookup(whole[1].strip())
    return _MARK.sub(lambda match: as_text(lookup(match[1].strip())), value)
