"""References in the parameters that a schedule gives to its pipeline. No I/O.

    ${schedule.time}        the time that the run is for, in ISO 8601 and UTC

A text that is one reference alone has the value of it, whatever its type. Within a longer text a
value that is no text is written as JSON. A parameter whose reference has no value is left out, so
that the default of the pipeline applies.
"""

import re
from collections.abc import Mapping
from typing import Any

from slipway.schemas.pipeline_references import PipelineError, as_text
from slipway.schemas.pipelines import PipelineIn

_MARK = re.compile(r"\$\{([^{}]*)\}")
_TIME = "schedule.time"
_SAMPLES: Mapping[str, Any] = {_TIME: "2026-11-30T02:00:00Z"}


class _NoValue(Exception):
    """A reference has no value in this run."""


def sample_parameters(pipeline: PipelineIn, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as a run could have them, to check their types.

    Raises PipelineError for what is no reference.
    """
    samples: dict[str, Any] = {}
    for name, value in parameters.items():
        for path in _paths_in(value):
            if path not in _SAMPLES:
                raise _unknown(path, name)
        samples[name] = _substitute(value, lambda path: _SAMPLES[path])
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


def _unknown(path: str, name: str) -> PipelineError:
    return PipelineError(
        f"${{{path[:80]}}} has no meaning in the parameters of a schedule.",
        field=f"parameters.{name}",
        next_step="Write ${schedule.time}, or a value.",
    )


def _paths_in(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [path for item in value.values() for path in _paths_in(item)]
    if isinstance(value, list):
        return [path for item in value for path in _paths_in(item)]
    return [match.strip() for match in _MARK.findall(value)] if isinstance(value, str) else []


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
