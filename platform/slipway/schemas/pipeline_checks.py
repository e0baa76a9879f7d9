"""Valid pipelines, and the order of their steps. No I/O."""

import difflib
import json
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

from slipway.schemas.notebook import SUFFIX
from slipway.schemas.pipeline_references import (
    PipelineError,
    Reference,
    parse_condition,
    references_in,
)
from slipway.schemas.pipelines import (
    MAX_PIPELINE_BYTES,
    MOST_ITEMS,
    PipelineIn,
    StepIn,
    StepKind,
)
from slipway.schemas.step_sweeps import SWEEP_FIELDS, SWEEP_OUTPUTS, check_sweep

_FLOW = {"name", "kind", "after", "when", "run_on"}
# Fields that have a meaning for kinds other than jobs. A job has all but those of the others.
_FIELDS: Mapping[StepKind, set[str]] = {
    "predict": _FLOW
    | {"model", "version", "data", "output", "table", "columns", "keep_columns", "on_error"}
    | {"foreach", "retries", "cache", "tier", "pool", "max_hours", "preemptible", "tags"}
    | {"environment"},
    "register": _FLOW | {"model", "source", "cache"},
    "promote": _FLOW | {"model", "version", "stage", "alias"},
    "approval": _FLOW | {"message", "approvers"},
}
_NOT_OF_SWEEPS = {
    *("model", "source", "version", "stage", "alias", "message", "approvers"),
    *("data", "output", "table", "columns", "keep_columns", "on_error"),
}
_NOT_OF_JOBS = _NOT_OF_SWEEPS | SWEEP_FIELDS
# It is one process, and its program has arguments of its own.
_NOT_OF_NOTEBOOKS = _NOT_OF_JOBS | {"args", "nodes", "procs", "strategy", "framework"}
_REQUIRED: Mapping[StepKind, tuple[str, ...]] = {
    "job": ("script",),
    "notebook": ("script",),
    "sweep": ("script", "parameters", "metric"),
    "predict": ("model", "data", "output"),
    "register": ("model", "source"),
    "promote": ("model", "version"),
}
NOTEBOOK_OUTPUTS = ("notebook", "run")
PREDICT_OUTPUTS = ("data", "rows", "failed_rows")
_OUTPUTS: Mapping[StepKind, tuple[str, ...]] = {
    "notebook": NOTEBOOK_OUTPUTS,
    "sweep": SWEEP_OUTPUTS,
    "predict": PREDICT_OUTPUTS,
    "register": ("version", "uri"),
    "promote": (),
    "approval": (),
}
# Fields with references, in the order in which errors are reported.
_WITH_REFERENCES = (
    *("foreach", "inputs", "args", "model", "source", "version", "message"),
    *("data", "output"),
    *("parameters", "metric", "constraints", "warm_start", "trials"),
)
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "file": (str,),
}


def check_pipeline(pipeline: PipelineIn) -> None:
    """Raise PipelineError unless every step can run once those before it have succeeded."""
    if len(pipeline.model_dump_json()) > MAX_PIPELINE_BYTES:
        raise PipelineError(
            f"The pipeline is larger than {MAX_PIPELINE_BYTES // 1024} KiB.",
            field="pipeline",
            next_step="Put data into files of the code, or use fewer steps.",
        )
    for name, parameter in pipeline.parameters.items():
        fault = type_fault(parameter.default, parameter.type)
        if parameter.default is not None and fault:
            raise PipelineError(
                f"The default of parameter {name} {fault}.",
                field=f"parameters.{name}.default",
                next_step=f"Write a value of type {parameter.type}, or change the type.",
            )
    names = [step.name for step in pipeline.steps]
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(
                f"Two steps are called {name}.",
                field="steps",
                next_step="Give each step a name of its own.",
            )
    for step in pipeline.steps:
        _check_step(pipeline, step)
    ordered(pipeline)


def ordered(pipeline: PipelineIn) -> list[StepIn]:
    """Return the steps so that each comes after those it waits for. Raises PipelineError."""
    graph = {step.name: dependencies(step) for step in pipeline.steps}
    try:
        names = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        # graphlib lists the cycle against its arrows.
        cycle = list(reversed(error.args[1]))
        raise PipelineError(
            f"Steps wait for each other in a cycle: {' → '.join(cycle)}.",
            field=f"steps.{cycle[0]}",
            next_step="Remove one of these references or entries of after.",
        ) from None
    return [pipeline.step(name) for name in names]


def dependencies(step: StepIn) -> dict[str, list[str]]:
    """Return the steps that a step waits for, each with the outputs that it uses of it."""
    used: dict[str, list[str]] = {name: [] for name in step.after}
    for reference in _references(step):
        if reference.step:
            labels = used.setdefault(reference.step, [])
            if reference.kind == "output" and reference.part not in labels:
                labels.append(reference.part)
    return used


def outputs_of(step: StepIn) -> Iterable[str]:
    """Return the names of the outputs of a step."""
    return (*_OUTPUTS.get(step.kind, ()), *step.outputs)


def resolved_parameters(pipeline: PipelineIn, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each parameter of a run. Raises PipelineError."""
    for name in given:
        if name not in pipeline.parameters:
            raise PipelineError(
                f"The pipeline has no parameter {name}.",
                field=f"parameters.{name}",
                next_step=_near(name, pipeline.parameters, "It has none: leave it out."),
            )
    values = {}
    for name, parameter in pipeline.parameters.items():
        value = given.get(name)
        if value is None:
            value = parameter.default
        if value is None:
            raise PipelineError(
                f"Parameter {name} has no value.",
                field=f"parameters.{name}",
                next_step=f"Name one ({parameter.type}), or give the parameter a default.",
            )
        if fault := type_fault(value, parameter.type):
            raise PipelineError(
                f"Parameter {name} {fault}.",
                field=f"parameters.{name}",
                next_step=f"Name a value of type {parameter.type}.",
            )
        values[name] = value
    return values


def type_fault(value: Any, expected: str) -> str:
    """Return why a value is not of a type, as a predicate, or ""."""
    types = _TYPES.get(expected)
    is_number = isinstance(value, bool) and expected != "boolean"  # true is no 1 here
    if types is None or (isinstance(value, types) and not is_number):
        return ""
    return f"is {json.dumps(value)[:80]}, not a value of type {expected}"


def items_fault(items: Any) -> str:
    """Return why a fan-out cannot use a value as its list, as a predicate, or ""."""
    if not isinstance(items, list):
        return f"is {json.dumps(items)[:80]}, not a list"
    if not items:
        return "is an empty list"
    if len(items) > MOST_ITEMS:
        return f"has {len(items)} items; at most {MOST_ITEMS} are possible"
    return ""


def _check_step(pipeline: PipelineIn, step: StepIn) -> None:
    place = f"steps.{step.name}"
    _check_fields(step, place)
    if step.when is not None:
        parse_condition(step.when, f"{place}.when")
    for name in step.after:
        _require_step(pipeline, name, f"{place}.after")
    for field in _WITH_REFERENCES:
        for reference in references_in(getattr(step, field), f"{place}.{field}"):
            _check_reference(pipeline, step, reference, f"{place}.{field}")
    for reference in references_in(step.when, f"{place}.when"):
        _check_reference(pipeline, step, reference, f"{place}.when")
    if step.kind == "sweep":
        check_sweep(step)
    if step.run_on != "success" and not dependencies(step):
        raise PipelineError(
            f"Step {step.name} runs on {step.run_on} of the steps before it, but has none.",
            field=f"{place}.after",
            next_step="Name the steps in after.",
        )


def _check_fields(step: StepIn, place: str) -> None:
    of_others = {"sweep": _NOT_OF_SWEEPS, "notebook": _NOT_OF_NOTEBOOKS}.get(
        step.kind, _NOT_OF_JOBS
    )
    allowed = _FIELDS.get(step.kind, set(StepIn.model_fields) - of_others)
    for field in sorted(step.model_fields_set - allowed):
        raise PipelineError(
            f"A step of kind {step.kind} has no {field}.",
            field=f"{place}.{field}",
            next_step="Remove it, or change the kind.",
        )
    for field in _REQUIRED.get(step.kind, ()):
        if getattr(step, field) in (None, {}):
            raise PipelineError(
                f"Step {step.name} has no {field}.",
                field=f"{place}.{field}",
                next_step=f"A step of kind {step.kind} needs it: add {field}.",
            )
    if step.kind == "notebook" and not str(step.script).endswith(SUFFIX):
        raise PipelineError(
            f"{step.script} of step {step.name} is no notebook.",
            field=f"{place}.script",
            next_step=f"Name a file that ends with {SUFFIX}, or remove the kind.",
        )
    for name, output in step.outputs.items():
        if name in _OUTPUTS.get(step.kind, ()):
            raise PipelineError(
                f"Every step of kind {step.kind} has the output {name}.",
                field=f"{place}.outputs.{name}",
                next_step="Remove it, or use another name.",
            )
        if output.path is not None and output.type != "file":
            raise PipelineError(
                f"Output {name} has a path, but is of type {output.type}.",
                field=f"{place}.outputs.{name}",
                next_step="Change its type to file, or remove the path.",
            )
    if step.kind == "promote" and (step.stage is None) == (step.alias is None):
        raise PipelineError(
            f"Step {step.name} needs exactly one of stage and alias.",
            field=f"{place}.stage",
            next_step="Name the stage or the alias that the version moves to.",
        )
    items = step.foreach
    is_reference = isinstance(items, str) and items.startswith("${")
    if items is not None and not is_reference and (fault := items_fault(items)):
        raise PipelineError(
            f"The list of the fan-out {step.name} {fault}.",
            field=f"{place}.foreach",
            next_step="Write a list, or a reference to one.",
        )


def _check_reference(pipeline: PipelineIn, step: StepIn, reference: Reference, place: str) -> None:
    if reference.kind == "item" and (step.foreach is None or place.endswith((".foreach", ".when"))):
        raise PipelineError(
            f"{reference} has no meaning in {place.rpartition('.')[2]} of step {step.name}.",
            field=place,
            next_step="Use it in inputs or args of a step with foreach.",
        )
    if reference.kind == "parameter" and reference.part not in pipeline.parameters:
        raise PipelineError(
            f"The pipeline has no parameter {reference.part}.",
            field=place,
            next_step=_near(reference.part, pipeline.parameters, "Add it to parameters."),
        )
    if not reference.step:
        return
    _require_step(pipeline, reference.step, place)
    if reference.kind == "field":
        return
    if step.run_on != "success":
        raise PipelineError(
            f"Step {step.name} may run without the outputs of {reference.step}.",
            field=place,
            next_step=f"Use ${{steps.{reference.step}.state}} or .job, or run_on: success.",
        )
    names = list(outputs_of(pipeline.step(reference.step)))
    if reference.part not in names:
        raise PipelineError(
            f"Step {reference.step} has no output {reference.part}.",
            field=place,
            next_step=_near(
                reference.part, names, f"Add it to the outputs of step {reference.step}."
            ),
        )


def _require_step(pipeline: PipelineIn, name: str, place: str) -> None:
    names = [step.name for step in pipeline.steps]
    if name not in names:
        raise PipelineError(
            f"There is no step {name}.",
            field=place,
            next_step=_near(name, names, "Add the step, or remove the reference."),
        )


def _references(step: StepIn) -> Iterable[Reference]:
    for field in (*_WITH_REFERENCES, "when"):
        yield from references_in(getattr(step, field), f"steps.{step.name}.{field}")


def _near(name: str, names: Iterable[str], otherwise: str) -> str:
    """Suggest the most similar name, or list some."""
    known = list(names)
    similar = difflib.get_close_matches(name, known, 1)
    if similar:
        return f"Did you mean {similar[0]}?"
    return f"There are: {', '.join(known[:8])}." if known else otherwise
