"""Pipelines in Python: functions that are steps, and a function that connects them.

    import slipway
    from pathlib import Path

    @slipway.step
    def prepare(rows: int) -> Path: ...

    @slipway.step(tier="cpu-small", retries=1)
    def train(data: Path, lr: float) -> float: ...

    @slipway.pipeline
    def digits(rows: int = 1000, lr: float = 0.1):
        train(prepare(rows), lr)

`slipway pipeline run FILE.py` runs it. Called as a function it runs in this process, so steps can
be tested as functions. Standard library only: jobs import the same file.
"""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from slipway.errors import InvalidInput
from slipway.step_values import outputs_of_hint, type_of_hint

__all__ = [
    "Pipeline",
    "Step",
    "approval",
    "notebook",
    "pipeline",
    "predict",
    "promote",
    "register",
    "script",
    "step",
    "sweep",
]

_FIELDS = ("state", "job", "run", "sweep")
_NOTEBOOK_OUTPUTS = ("notebook", "run")
_SWEEP_OUTPUTS = ("best_value", "parameters", "best_job", "best_run")
_Wrapped = TypeVar("_Wrapped", bound=Callable[..., Any])


class _Unknown:
    """A value that is known only in a run. It can be passed to steps and compared, not read."""

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> "Comparison":  # type: ignore[override]
        return self._compared("==", other)

    def __ne__(self, other: object) -> "Comparison":  # type: ignore[override]
        return self._compared("!=", other)

    def __lt__(self, other: object) -> "Comparison":
        return self._compared("<", other)

    def __le__(self, other: object) -> "Comparison":
        return self._compared("<=", other)

    def __gt__(self, other: object) -> "Comparison":
        return self._compared(">", other)

    def __ge__(self, other: object) -> "Comparison":
        return self._compared(">=", other)

    def __bool__(self) -> bool:
        raise _unknown(f"{self} has no value before the run")

    def __iter__(self) -> Any:
        raise _unknown(f"{self} has no items before the run")

    def _compared(self, operator: str, other: object) -> "Comparison":
        right = str(other) if isinstance(other, _Unknown) else _json_text(other)
        return Comparison(f"{self} {operator} {right}")


class Value(_Unknown):
    """A parameter, or an output of a step."""

    def __init__(self, reference: str) -> None:
        self._reference = reference

    def __str__(self) -> str:
        return f"${{{self._reference}}}"

    __repr__ = __str__


class Comparison:
    """A comparison of values, for `when`."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __bool__(self) -> bool:
        raise _unknown(f"{self.text} is not known before the run")


class Handle(_Unknown):
    """A step within a pipeline. Its attributes are its outputs, besides state, job, run and sweep.

    A step with one output stands for it.
    """

    def __init__(self, name: str, outputs: Sequence[str]) -> None:
        self._name = name
        self._outputs = tuple(outputs)

    def __getattr__(self, name: str) -> Value:
        if name in self._outputs:
            return Value(f"steps.{self._name}.outputs.{name}")
        if name in _FIELDS:
            return Value(f"steps.{self._name}.{name}")
        known = ", ".join(self._outputs) or "none"
        raise AttributeError(f"Step {self._name} has no output {name}. Outputs: {known}.")

    def __str__(self) -> str:
        return str(self.alone())

    def step_name(self) -> str:
        """Return the name of the step in the pipeline."""
        return self._name

    def alone(self) -> Value:
        """Return the only output. Raises InvalidInput if there are several, or none."""
        if len(self._outputs) != 1:
            raise InvalidInput(
                f"Step {self._name} has {len(self._outputs)} outputs, so it is no value itself.",
                field=f"steps.{self._name}",
                next_step=f"Pass one of them: {', '.join(self._outputs)}."
                if self._outputs
                else "Annotate what the step returns.",
            )
        return Value(f"steps.{self._name}.outputs.{self._outputs[0]}")


class _Trace:
    """The steps of the pipeline whose function runs now."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def add(self, name: str, fields: Mapping[str, Any], outputs: Sequence[str]) -> Handle:
        names = {step["name"] for step in self.steps}
        number, unique = 2, name
        while unique in names:
            unique, number = f"{name}-{number}", number + 1
        given = {key: value for key, value in fields.items() if value is not None}
        self.steps.append({"name": unique, **given})
        return Handle(unique, outputs)


_traces: list[_Trace] = []


class Step:
    """A function that is a step. `options` changes how it runs, `map` starts it for many items."""

    def __init__(self, function: Callable[..., Any], options: Mapping[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self._options = dict(options)
        self._mapped: dict[str, Any] = {}

    @property
    def defaults(self) -> dict[str, Any]:
        """The options of its decorator."""
        return dict(self._options)

    def options(
        self,
        *,
        name: str | None = None,
        after: Sequence[Handle | str] = (),
        when: object = None,
        run_on: str | None = None,
        **job: Any,
    ) -> "Step":
        """Return the step with other options.

        `name` is its name in the pipeline, `after` are further steps to wait for, `when` is a
        condition, `run_on` is success, failure or always. Other options are those of `step`.
        """
        given = {"name": name, "after": after or None, "when": when, "run_on": run_on, **job}
        changed = {key: value for key, value in given.items() if value is not None}
        made = Step(self.function, self._options | changed)
        made._mapped = self._mapped
        return made

    def map(self, **items: Any) -> "Step":
        """Return the step for each item of a list, passed as the parameter that is named here."""
        if len(items) != 1:
            raise InvalidInput(
                f"A fan-out has one list, but {len(items)} are named.",
                field="map",
                next_step="Write it like train.map(lr=[0.1, 0.01])(data).",
            )
        made = Step(self.function, self._options)
        made._mapped = items
        return made

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Add the step to the pipeline, or call the function outside of one."""
        if not _traces:
            return self._run_here(args, kwargs)
        name, items = next(iter(self._mapped.items()), ("", None))
        given = kwargs | ({name: "${item}"} if name else {})
        try:
            bound = inspect.signature(self.function).bind(*args, **given)
        except TypeError as error:
            raise InvalidInput(
                f"Step {self.function.__name__} cannot be called so: {error}.",
                field=f"steps.{self.function.__name__}.inputs",
                next_step="Pass what its parameters need, by position or name.",
            ) from None
        inputs = {key: _plain(value) for key, value in bound.arguments.items()}
        outputs = outputs_of_hint(_hints(self.function).get("return"))
        fields = _flow(self._options) | {
            "script": f"{inspect.getsourcefile(self.function)}::{self.function.__name__}",
            "inputs": inputs,
            "outputs": {key: {"type": kind} for key, kind in outputs.items()},
            "foreach": _plain(items),
        }
        label = str(fields.pop("name", self.function.__name__))
        return _traces[-1].add(label, fields, list(outputs))

    def _run_here(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._options.get("when") is False:
            return None
        if not self._mapped:
            return self.function(*args, **kwargs)
        ((name, items),) = self._mapped.items()
        return _Results(self.function(*args, **kwargs, **{name: item}) for item in items)


class _Results(list[Any]):
    """Results of a fan-out in this process. An attribute is that of each of them."""

    def __getattr__(self, name: str) -> list[Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return [getattr(result, name) for result in self]


class Pipeline:
    """A function that connects steps. `spec` describes it, a call runs it in this process."""

    def __init__(self, function: Callable[..., Any], name: str, description: str) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name
        self.description = description

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run all steps in this process, without jobs."""
        return self.function(*args, **kwargs)

    def spec(self) -> dict[str, Any]:
        """Return the pipeline as YAML files describe it. Scripts are absolute paths."""
        hints = _hints(self.function)
        parameters: dict[str, dict[str, Any]] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            parameters[name] = {"type": type_of_hint(hints.get(name))}
            if parameter.default is not inspect.Parameter.empty:
                parameters[name]["default"] = _plain(parameter.default)
        trace = _Trace()
        _traces.append(trace)
        try:
            self.function(**{name: Value(f"parameters.{name}") for name in parameters})
        finally:
            _traces.pop()
        described = {"description": self.description} if self.description else {}
        return {"name": self.name, **described, "parameters": parameters, "steps": trace.steps}


@typing.overload
def step(function: Callable[..., Any], /) -> Step: ...
@typing.overload
def step(**options: Any) -> Callable[[Callable[..., Any]], Step]: ...
def step(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a step of pipelines: a job of its own.

    Options are the fields of a step in YAML: tier, environment, requirements_file, python, nodes,
    procs, retries, max_hours, cache, datasets, keep and more. The annotations of its parameters and
    of what it returns are the types of inputs and outputs. A `Path` is a file.
    """
    if function is None:
        return lambda decorated: Step(decorated, options)
    return Step(function, options)


@typing.overload
def pipeline(function: Callable[..., Any], /) -> Pipeline: ...
@typing.overload
def pipeline(
    *, name: str | None = None, description: str = ""
) -> Callable[[Callable[..., Any]], Pipeline]: ...
def pipeline(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str = "",
) -> Any:
    """Make a function a pipeline. Its parameters are those of the pipeline."""

    def made(decorated: Callable[..., Any]) -> Pipeline:
        text = description or inspect.getdoc(decorated) or ""
        return Pipeline(decorated, name or decorated.__name__.strip("_").replace("_", "-"), text)

    return made if function is None else made(function)


def script(
    path: str, *, name: str | None = None, outputs: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """Add a script of the code as a step. `outputs` are names with types, such as "number".

    `inputs` reach it as `--name=value`. Other options are the fields of a step.
    """
    typed = _typed(outputs)
    fields = {**options, "script": path, "outputs": typed, "inputs": options.get("inputs")}
    return _add("script", name or Path(path).stem, fields, list(typed))


def notebook(
    path: str,
    *,
    inputs: Mapping[str, Any] | None = None,
    outputs: Mapping[str, Any] | None = None,
    name: str | None = None,
    **options: Any,
) -> Any:
    """Add a notebook of the code as a step. `inputs` are values of its cell tagged `parameters`.

    Its cells report `outputs` with `slipway.step_output`. Besides these the step has the outputs
    notebook, the file with the results of its cells, and run. Other options are those of a step.
    """
    typed = _typed(outputs)
    given = {"kind": "notebook", "script": path, "inputs": inputs, "outputs": typed or None}
    fields = {**options, **given}
    return _add("notebook", name or Path(path).stem, fields, [*_NOTEBOOK_OUTPUTS, *typed])


def sweep(
    script: str | Step,
    *,
    parameters: Mapping[str, Any],
    metric: object,
    name: str | None = None,
    outputs: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Add a sweep of a script, or of a step that is a function, as a step.

    `parameters` are names with ranges, such as "loguniform(1e-4,1e-1)" or a list of choices, and
    `metric` is like "accuracy:max". `inputs` are the same for all trials. `outputs` are files of
    the best trial, such as {"type": "file", "path": "model.txt"}, and numbers it has logged.
    Options are those of a sweep (trials, parallel, algorithm, scheduler, seed, constraints, …)
    and of a step. Besides `outputs` the step has best_value, parameters, best_job and best_run.
    """
    typed = _typed(outputs)
    if isinstance(script, Step):
        fields, label = {**script.defaults, **options}, script.function.__name__
        path = f"{inspect.getsourcefile(script.function)}::{label}"
    else:
        fields, label, path = options, Path(script).stem, script
    given = {"kind": "sweep", "script": path, "parameters": parameters, "metric": metric}
    fields = {**fields, **given, "outputs": typed or None}
    return _add("sweep", name or label, fields, [*_SWEEP_OUTPUTS, *typed])


def predict(
    model: object, data: object, output: object, *, name: str = "predict", **options: Any
) -> Any:
    """Add a step that predicts a dataset with a version of a model, as a batch prediction does.

    Options are `version`, `table`, `columns`, `keep_columns`, `on_error`, `environment` and fields
    of a step. Its outputs are data, the version of the dataset `output`, rows and failed_rows.
    """
    fields = {**options, "kind": "predict", "model": model, "data": data, "output": output}
    return _add("predict", name, fields, ["data", "rows", "failed_rows"])


def register(model: object, source: object, *, name: str = "register", **options: Any) -> Any:
    """Add a step that registers files as the next version of a model."""
    fields = {**options, "kind": "register", "model": model, "source": source}
    return _add("register", name, fields, ["version", "uri"])


def promote(
    model: object,
    version: object,
    *,
    stage: str | None = None,
    alias: str | None = None,
    name: str = "promote",
    **options: Any,
) -> Any:
    """Add a step that moves a version of a model to a stage, or an alias to it."""
    fields = {"kind": "promote", "model": model, "version": version, "stage": stage, "alias": alias}
    return _add("promote", name, {**options, **fields}, [])


def approval(
    message: object = "", *, approvers: str | None = None, name: str = "approval", **options: Any
) -> Any:
    """Add a step that waits until a person with the role `approvers` approves."""
    fields = {"kind": "approval", "message": message or None, "approvers": approvers}
    return _add("approval", name, {**options, **fields}, [])


def _typed(outputs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return outputs whose types may be written as one word."""
    return {
        key: {"type": kind} if isinstance(kind, str) else kind
        for key, kind in (outputs or {}).items()
    }


def _add(noun: str, name: str, fields: Mapping[str, Any], outputs: list[str]) -> Handle:
    if not _traces:
        raise InvalidInput(
            f"A step of kind {noun} exists only in a pipeline.",
            field=f"steps.{name}",
            next_step="Call it in a function with @slipway.pipeline, and run it with "
            "`slipway pipeline run`.",
        )
    plain = {key: _plain(value) for key, value in _flow(fields).items()}
    return _traces[-1].add(name, plain, outputs)


def _flow(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with the names of steps and the text of conditions."""
    fields = dict(options)
    after = fields.get("after")
    if after is not None:
        handles = [after] if isinstance(after, str | Handle) else after
        fields["after"] = [
            item.step_name() if isinstance(item, Handle) else item for item in handles
        ]
    when = fields.get("when")
    if isinstance(when, Comparison):
        fields["when"] = when.text
    elif isinstance(when, _Unknown):
        fields["when"] = str(_plain(when))
    elif isinstance(when, bool):
        fields["when"] = "true == true" if when else "true == false"
    return fields


def _plain(value: Any) -> Any:
    """Return a value of a call as JSON, with references in place of values of the run."""
    if isinstance(value, _Unknown | Path):
        return str(value)
    if isinstance(value, Comparison):
        raise _unknown(f"{value.text} is not known before the run")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _plain(dataclasses.asdict(value))
    return value


def _json_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return dict(getattr(function, "__annotations__", {}))


def _unknown(reason: str) -> InvalidInput:
    return InvalidInput(
        f"{reason}.",
        code="value_of_a_run",
        field="pipeline",
        next_step="Pass it to a step, or use it in options(when=…).",
    )
