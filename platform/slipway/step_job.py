"""Entry point of steps that are functions: `python -m slipway.step_job FILE.py::FUNCTION`.

Reads the inputs from the parameters of the job, calls the function and reports what it returns.
Standard library only: the environment belongs to the job.
"""

import importlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slipway import job
from slipway.errors import SlipwayError
from slipway.pipelines import Step
from slipway.step_io import local_value, report_outputs
from slipway.step_values import outputs_of_result, parsed, type_of_hint


def main(arguments: Sequence[str]) -> int:
    """Run the step, and return the exit status."""
    file, _, name = (arguments[0] if arguments else "").partition("::")
    function = getattr(_module(file), name, None)
    if isinstance(function, Step):
        function = function.function
    if not callable(function):
        return _failed(f"{file} has no function {name}.")
    hints = typing.get_type_hints(function)
    try:
        inputs = _inputs(function, hints, job.current().params)
    except (SlipwayError, ValueError) as error:
        return _failed(f"Step {name} cannot start: {error}")
    result = function(**inputs)
    try:
        report_outputs(outputs_of_result(result, hints.get("return")))
    except (SlipwayError, TypeError) as error:
        return _failed(f"Step {name} has run, but {error}")
    return 0


def _inputs(
    function: Callable[..., Any], hints: dict[str, Any], params: typing.Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments of the function. Files are downloaded."""
    signature = inspect.signature(function)
    accepted, values = signature.parameters, {}
    for name, text in params.items():
        if name not in accepted:
            raise ValueError(f"it has no parameter {name}")
        try:
            value = local_value(parsed(text, hints.get(name)))
        except ValueError as error:
            raise ValueError(f"{name} {error}") from None
        is_path = type_of_hint(hints.get(name)) == "file"
        values[name] = Path(value) if is_path else value
    try:
        signature.bind(**values)
    except TypeError as error:
        raise ValueError(f"of its inputs: {error}") from None
    return values


def _module(file: str) -> Any:
    """Import a file of the code under the name by which other files import it."""
    folder = Path.cwd()
    for place in (folder / Path(file).parent, folder):
        if str(place) not in sys.path:
            sys.path.insert(0, str(place))
    parts = Path(file).with_suffix("").parts
    if all(part.isidentifier() for part in parts):
        return importlib.import_module(".".join(parts))
    spec = importlib.util.spec_from_file_location(parts[-1], folder / file)
    if spec is None or spec.loader is None:
        raise ImportError(file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[parts[-1]] = module
    spec.loader.exec_module(module)
    return module


def _failed(message: str) -> int:
    sys.stderr.write(f"[slipway] {message}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
