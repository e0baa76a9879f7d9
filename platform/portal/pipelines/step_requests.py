"""Steps as work: values of references, submissions, and digests. No I/O but reads of rows.

The digest of a step stands for all that its outputs depend on: code, script, arguments, inputs,
environment, versions of datasets, number of ranks and declared outputs. Names, tags, hardware,
limits and retries are not part of it.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from portal.core.errors import InvalidInput
from portal.experiments.services.job_runs import run_id_of
from portal.pipelines.models import PipelineRun, StepRun
from slipway.schemas.pipeline_references import PipelineError, Reference, as_text, substitute
from slipway.schemas.pipelines import PipelineIn, StepIn
from slipway.schemas.step_sweeps import sweep_of
from slipway.schemas.sweeps import SweepIn
from slipway.schemas.training import GitFacts, JobIn

_PIPELINE_TAG = "pipeline"
_MOST_TAGS = 10
# Fields of a job that its outputs do not depend on.
_IRRELEVANT = {
    *("name", "tags", "priority", "tier", "pool", "parent", "git"),
    *("max_attempts", "max_hours", "hang_after_minutes", "keep_limit_bytes", "preemptible"),
    "keep_failed_minutes",
}
# Fields of a sweep that its best trial does not depend on.
_IRRELEVANT_OF_SWEEPS: dict[str, Any] = {
    "job": _IRRELEVANT,
    **dict.fromkeys(("name", "parallel", "retries"), True),
}
_SAME_FIELDS = (
    *("script", "tier", "pool", "nodes", "procs", "strategy", "framework", "backend"),
    *("requirements", "requirements_file", "environment", "python", "datasets", "max_hours"),
    *("hang_after_minutes", "keep", "keep_limit_bytes", "preemptible"),
)
Lookup = Callable[[Reference], Any]


class NoValue(Exception):
    """A reference has no value yet: its step has not ended, or has no outputs."""


def job_of_step(
    pipeline: PipelineIn, step: StepIn, *, snapshot: str | None, git: GitFacts | None
) -> JobIn:
    """Return the submission of a step, with references in inputs and arguments.

    Raises InvalidInput, naming the field of the step.
    """
    if snapshot is None:
        raise InvalidInput(
            f"Step {step.name} runs code, but the run has no snapshot.",
            field="snapshot",
            next_step="Start it with `slipway pipeline run`, which uploads the code.",
        )
    fields = {name: getattr(step, name) for name in _SAME_FIELDS}
    if step.is_notebook:
        fields["keep"] = [*step.keep, step.executed_path]
    tags = dict(step.tags)
    if len(tags) < _MOST_TAGS:
        tags.setdefault(_PIPELINE_TAG, pipeline.name)
    return _validated(
        step,
        {
            "name": f"{pipeline.name}-{step.name}",
            "snapshot": snapshot,
            "git": git,
            "tags": tags,
            "params": {name: as_text(value) for name, value in step.inputs.items()},
            "args": _args_of(step),
            **fields,
        },
    )


def resolved_job(request: JobIn, step: StepIn, lookup: Lookup) -> JobIn:
    """Return a submission with the values of its references. Raises InvalidInput and NoValue."""
    inputs = {name: substitute(value, lookup) for name, value in step.inputs.items()}
    params = {name: as_text(value) for name, value in inputs.items()}
    args = [as_text(substitute(arg, lookup)) for arg in _args_of(step)]
    return _validated(step, request.model_dump() | {"params": params, "args": args})


def _args_of(step: StepIn) -> list[str]:
    """Return the arguments of a script, or of the program that runs a notebook."""
    return [f"--keep={step.executed_path}"] if step.is_notebook else step.args


def resolved_sweep(request: JobIn, step: StepIn, lookup: Lookup) -> SweepIn:
    """Return the sweep of a step with the values of its references, and trials like `request`.

    Raises InvalidInput and NoValue.
    """
    job = resolved_job(request, step, lookup)
    try:
        return sweep_of(step, job, lookup)
    except PipelineError as error:
        raise InvalidInput(
            error.message, code="bad_sweep", field=error.field, next_step=error.next_step
        ) from error


def digest_of(step: StepIn, resolved: JobIn | SweepIn | Mapping[str, Any]) -> str:
    """Return the digest of a step whose references have values."""
    if isinstance(resolved, JobIn):
        content = resolved.model_dump(mode="json", exclude=_IRRELEVANT)
    elif isinstance(resolved, SweepIn):
        content = resolved.model_dump(mode="json", exclude=_IRRELEVANT_OF_SWEEPS)
    else:
        content = dict(resolved)
    content["kind"] = step.kind
    content["outputs"] = {name: output.model_dump() for name, output in step.outputs.items()}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def lookup_in(
    run: PipelineRun, rows: Mapping[str, StepRun], item: Any = None
) -> Callable[[Reference], Any]:
    """Return the values of references in a run. `rows` are its steps by name."""

    def value(reference: Reference) -> Any:
        if reference.kind == "parameter":
            return run.parameters[reference.part]
        if reference.kind == "item":
            return item
        row = rows[reference.step]
        if reference.kind == "field":
            return _field(row, reference.part)
        if not row.status.has_outputs or reference.part not in row.outputs:
            raise NoValue(str(reference))
        return row.outputs[reference.part]

    return value


def lookup_of_parameters(parameters: Mapping[str, Any]) -> Lookup:
    """Return the values of references before a run: those of its parameters alone."""

    def value(reference: Reference) -> Any:
        if reference.kind != "parameter":
            raise NoValue(str(reference))
        return parameters[reference.part]

    return value


def _field(row: StepRun, name: str) -> str:
    if name == "state":
        return str(row.state)
    if name == "sweep":
        return row.sweep_id or ""
    if row.job_id is None:
        return ""
    return row.job_id if name == "job" else run_id_of(row.job_id)


def _validated(step: StepIn, fields: Mapping[str, Any]) -> JobIn:
    given = {name: value for name, value in fields.items() if value is not None}
    # None switches it off, whereas leaving it out would be the default.
    given["hang_after_minutes"] = fields["hang_after_minutes"]
    try:
        return JobIn.model_validate(given)
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False)[0]
        path = _names(fault["loc"])
        raise InvalidInput(
            f"{path} of step {step.name}: {fault['msg'].removeprefix('Value error, ')}.",
            field=f"steps.{step.name}.{path}",
            next_step="Use a shorter value on one line, or pass a file.",
        ) from error


def _names(location: Sequence[int | str]) -> str:
    parts = ["inputs" if part == "params" else str(part) for part in location]
    return ".".join(parts)
