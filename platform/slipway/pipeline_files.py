"""Pipelines in files: YAML, and Python with `@slipway.pipeline`."""

import importlib.util
import os
import re
import sys
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from slipway.errors import InvalidInput, SlipwayError
from slipway.pipelines import Pipeline
from slipway.sanitize import visible
from slipway.schemas.pipeline_checks import check_pipeline, resolved_parameters
from slipway.schemas.pipeline_references import PipelineError
from slipway.schemas.pipelines import PipelineIn
from slipway.schemas.problem import FieldError

_MAX_BYTES = 1_000_000
_MODULE = "slipway_pipeline_file"
_STEP = re.compile(r"steps\.(\d+)(?=\.|$)")


class _Loader(yaml.SafeLoader):
    """Reads YAML and refuses a key that is there twice, of which the first would be lost."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [key for key in keys if keys.count(key) > 1]
        if twice:
            raise yaml.constructor.ConstructorError(
                None, None, f"{twice[0]} is there twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


def read_pipeline(source: str, *, folder: str | Path = ".") -> PipelineIn:
    """Read a pipeline: a YAML file, a Python file, or `FILE.py::NAME` if it has several.

    Scripts of steps become paths from `folder`, the folder of the code. Raises InvalidInput, which
    names the field, the reason and the next step.
    """
    name, _, attribute = source.partition("::")
    path = Path(name).expanduser()
    if path.suffix in (".yaml", ".yml") and not attribute:
        return checked(_from_yaml(path))
    if path.suffix != ".py":
        raise _unreadable(path, "it is neither YAML nor Python")
    root = Path(folder).expanduser().resolve()
    return checked(_with_relative_scripts(_from_python(path, attribute, root), root))


def checked(spec: Mapping[str, Any]) -> PipelineIn:
    """Return a description as a valid pipeline. Raises InvalidInput."""
    try:
        pipeline = PipelineIn.model_validate(spec)
        check_pipeline(pipeline)
    except ValidationError as error:
        faults = [
            FieldError(
                field=_named(".".join(map(str, fault["loc"])), spec),
                message=fault["msg"].removeprefix("Value error, "),
            )
            for fault in error.errors(include_input=False, include_url=False)
        ]
        raise InvalidInput(
            f"The pipeline is not valid: {faults[0].field}.",
            code="bad_pipeline",
            field=faults[0].field,
            errors=faults,
            next_step="Correct it as docs/pipelines.md describes.",
        ) from None
    except PipelineError as error:
        raise _refused(error) from None
    return pipeline


def checked_parameters(pipeline: PipelineIn, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the value of each parameter of a run. Raises InvalidInput."""
    try:
        return resolved_parameters(pipeline, given)
    except PipelineError as error:
        raise _refused(error) from None


def _refused(error: PipelineError) -> InvalidInput:
    return InvalidInput(
        visible(error.message),
        code="bad_pipeline",
        field=error.field,
        next_step=visible(error.next_step),
    )


def _named(field: str, spec: Mapping[str, Any]) -> str:
    """Return a field with the name of the step in place of its number."""
    match = _STEP.match(field)
    steps = spec.get("steps")
    if match is None or not isinstance(steps, list):
        return field
    step = steps[int(match[1])]
    name = step.get("name") if isinstance(step, Mapping) else None
    return field if not isinstance(name, str) else f"steps.{name}{field[match.end() :]}"


def _from_yaml(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise _unreadable(path, "it is larger than 1 MB")
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - safe
    except OSError as error:
        raise _unreadable(path, str(error.strerror)) from None
    except (UnicodeDecodeError, RecursionError):
        raise _unreadable(path, "it is not YAML in UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        problem = getattr(error, "problem", "") or "it is not valid YAML"
        raise _unreadable(path, f"{problem}{line}") from None
    except (ValueError, TypeError):
        raise _unreadable(path, "it is not valid YAML") from None
    if not isinstance(content, dict) or "steps" not in content:
        raise _unreadable(path, "it has no steps")
    content.setdefault("name", path.stem.lower().replace("_", "-"))
    content["parameters"] = {
        str(key): value if isinstance(value, Mapping) else _parameter(value)
        for key, value in _mapping(content.get("parameters"), "parameters").items()
    }
    content["steps"] = _steps(content["steps"])
    return content


def _steps(value: Any) -> list[Any]:
    """Return the steps of a list, or of a mapping of names to steps."""
    if isinstance(value, list):
        steps = value
    else:
        items = _mapping(value, "steps").items()
        steps = [{"name": str(name), **_mapping(step, f"steps.{name}")} for name, step in items]
    for step in steps:
        outputs = step.get("outputs") if isinstance(step, dict) else None
        if isinstance(outputs, dict):
            step["outputs"] = {
                name: {"type": output} if isinstance(output, str) else output
                for name, output in outputs.items()
            }
        elif isinstance(outputs, list):
            step["outputs"] = {str(name): {"type": "any"} for name in outputs}
    return steps


def _parameter(value: Any) -> dict[str, Any]:
    """Return a parameter that is written as its default."""
    types = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array"}
    return {"type": types.get(type(value), "any"), "default": value}


def _mapping(value: Any, field: str) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput(
            f"{visible(field)} of the pipeline is no mapping.",
            code="bad_pipeline",
            field=field,
            next_step="Write NAME: … below it, as docs/pipelines.md describes.",
        )
    return value


def _from_python(path: Path, attribute: str, root: Path) -> dict[str, Any]:
    pipelines = {
        key: value for key, value in _module(path, root).items() if isinstance(value, Pipeline)
    }
    if attribute and attribute not in pipelines:
        raise _unreadable(path, f"it has no pipeline {attribute}", pipelines)
    if not attribute and len(pipelines) != 1:
        reason = f"it has {len(pipelines)} pipelines" if pipelines else "it has no pipeline"
        raise _unreadable(path, reason, pipelines)
    return pipelines[attribute or next(iter(pipelines))].spec()


def _module(path: Path, root: Path) -> dict[str, Any]:
    """Run a Python file as its steps will, with the folder of the code on the path."""
    if not path.is_file():
        raise _unreadable(path, "there is no such file")
    loader = importlib.util.spec_from_file_location(_MODULE, path.resolve())
    if loader is None or loader.loader is None:
        raise _unreadable(path, "it is no Python file")
    module = importlib.util.module_from_spec(loader)
    with _on_path(root, path.resolve().parent):
        sys.modules[_MODULE] = module  # stays there: annotations are evaluated later
        try:
            loader.loader.exec_module(module)
        except SlipwayError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise _unreadable(path, f"running it failed with {reason}") from error
    return vars(module)


@contextmanager
def _on_path(*folders: Path) -> Any:
    before = list(sys.path)
    sys.path[:0] = [str(folder) for folder in folders]
    try:
        yield
    finally:
        sys.path[:] = before


def _with_relative_scripts(spec: dict[str, Any], root: Path) -> dict[str, Any]:
    for step in spec["steps"]:
        file, mark, function = str(step.get("script") or "").partition("::")
        if not mark:
            continue
        path = Path(file).resolve()
        if not path.is_relative_to(root):
            raise InvalidInput(
                f"Step {step['name']} is in {visible(str(path))}, outside of the code folder.",
                code="bad_pipeline",
                field=f"steps.{step['name']}.script",
                next_step="Name the folder that has all of the code with --code.",
            )
        step["script"] = f"{path.relative_to(root).as_posix()}::{function}"
    return spec


def _unreadable(path: Path, reason: str, known: Mapping[str, Any] | None = None) -> InvalidInput:
    name = visible(os.fspath(path))
    names = ", ".join(f"{name}::{key}" for key in known or ())
    return InvalidInput(
        f"The pipeline {name} cannot be read: {visible(reason)}.",
        code="bad_pipeline",
        field="file",
        next_step=f"Name one: {names}."
        if names
        else "Name a YAML file, or a Python file with a function @slipway.pipeline.",
    )
