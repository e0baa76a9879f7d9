"""Steps of kind `sweep`: the sweep that one starts, and what can be none. No I/O."""

from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from slipway.parameter_spaces import EXAMPLES, read_constraint, read_metric, read_space
from slipway.schemas.pipeline_references import (
    Lookup,
    PipelineError,
    Reference,
    as_text,
    references_in,
    substitute,
)
from slipway.schemas.pipelines import StepIn
from slipway.schemas.sweeps import SweepIn
from slipway.schemas.training import JobIn

# Fields of a step that only a sweep has.
SWEEP_FIELDS = {
    *("parameters", "metric", "constraints", "warm_start", "algorithm", "trials", "parallel"),
    *("seed", "scheduler", "min_values", "eta"),
}
SWEEP_OUTPUTS = ("best_value", "parameters", "best_job", "best_run")
_NUMBERS = ("number", "integer", "any")
_SAME_FIELDS = ("algorithm", "parallel", "retries", "seed", "scheduler", "min_values", "eta")
_METRIC = "Write it as accuracy:max or loss:min."
_CONSTRAINT = "Write it as latency_ms<=20 or recall>=0.9."
_ANY_JOB = JobIn(snapshot="0" * 64, script="train.py")


def sweep_of(step: StepIn, job: JobIn, lookup: Lookup) -> SweepIn:
    """Return the sweep that a step starts, with trials like `job`.

    Raises PipelineError for what can be no sweep, and what `lookup` raises.
    """
    place = f"steps.{step.name}"
    fields: dict[str, Any] = {
        "name": job.name,
        "job": job.model_dump(),
        "parameters": {
            name: _parsed(read_space, space, f"{place}.parameters.{name}", EXAMPLES)
            for name, space in substitute(step.parameters, lookup).items()
        },
        "metric": _parsed(read_metric, substitute(step.metric, lookup), f"{place}.metric", _METRIC),
        "constraints": [
            _parsed(read_constraint, bound, f"{place}.constraints", _CONSTRAINT)
            for bound in substitute(step.constraints, lookup)
        ],
        "warm_start": [as_text(source) for source in substitute(step.warm_start, lookup)],
        "trials": substitute(step.trials, lookup),
        **{name: getattr(step, name) for name in _SAME_FIELDS},
    }
    try:
        return SweepIn.model_validate(fields)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        path = ".".join(map(str, fault["loc"]))
        raise PipelineError(
            f"{path or 'The sweep'} of step {step.name}: "
            f"{fault['msg'].removeprefix('Value error, ')}.",
            field=f"{place}.{path}" if path else place,
            next_step="Correct it as docs/sweeps.md describes.",
        ) from error


def check_sweep(step: StepIn) -> None:
    """Raise PipelineError for a sweep that can never start. What has references is left out."""
    place = f"steps.{step.name}"
    _check_outputs(step, place)
    for name in step.parameters:
        if name in step.inputs:
            raise PipelineError(
                f"{name} of step {step.name} is in parameters and in inputs.",
                field=f"{place}.parameters.{name}",
                next_step="Leave out one of them: inputs are the same in all trials.",
            )
        if not _has_references(step.parameters[name]):
            _parsed(read_space, step.parameters[name], f"{place}.parameters.{name}", EXAMPLES)
    parts = (step.parameters, step.metric, step.constraints, step.warm_start, step.trials)
    if not any(map(_has_references, parts)):
        sweep_of(step, _ANY_JOB, _no_value)


def _check_outputs(step: StepIn, place: str) -> None:
    for name, output in step.outputs.items():
        if output.type == "file" and output.path is None:
            raise PipelineError(
                f"The output {name} of step {step.name} has no path.",
                field=f"{place}.outputs.{name}",
                next_step="Add path: the file or folder that each trial writes.",
            )
        if output.type != "file" and output.type not in _NUMBERS:
            raise PipelineError(
                f"The output {name} of step {step.name} is of type {output.type}.",
                field=f"{place}.outputs.{name}",
                next_step="Use file with a path, or number for a metric of the best trial.",
            )


def _parsed(parse: Callable[[str], Any], value: Any, field: str, next_step: str) -> Any:
    """Return an object as it is, a list as choices, and everything else parsed."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and parse is read_space:
        return {"type": "choice", "choices": [as_text(choice) for choice in value]}
    try:
        return parse(as_text(value)).model_dump()
    except ValueError as error:
        _, step, part = field.split(".", 2)
        raise PipelineError(
            f"{part} of step {step}: {error}", field=field, next_step=next_step
        ) from error


def _has_references(value: Any) -> bool:
    return any(True for _ in references_in(value, ""))


def _no_value(reference: Reference) -> Any:
    raise AssertionError(reference)
