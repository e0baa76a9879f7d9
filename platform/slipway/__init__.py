"""Slipway: the SDK of the all-in-one machine-learning platform.

import slipway

with slipway.Client() as client:
    for project in client.projects.list():
        ...

job = slipway.train("train.py", params={"lr": 0.1}, watch=True)
data = slipway.dataset("digits:3").arrow()
predictions = slipway.Endpoint("digits").predict(frame)
"""

from importlib import import_module
from typing import Any

from slipway.bundled_packages import use_bundled_packages
from slipway.version import __version__

__all__ = [
    "Client",
    "Endpoint",
    "Model",
    "Pages",
    "Retries",
    "SlipwayError",
    "__version__",
    "dataset",
    "errors",
    "job",
    "optuna_storage",
    "pipeline",
    "pipelines",
    "register",
    "run_pipeline",
    "step",
    "step_input",
    "step_output",
    "track",
    "train",
]

# Each name is imported on first use, so a rank of a job that only reports its steps imports neither
# HTTP nor schemas. Type checkers read `__init__.pyi`.
_HOMES = {
    "Client": "slipway.client",
    "cells": "slipway.cells",
    "Endpoint": "slipway.endpoint",
    "Model": "slipway.registration",
    "Pages": "slipway.pages",
    "Retries": "slipway.retries",
    "SlipwayError": "slipway.errors",
    "dataset": "slipway.datasets",
    "errors": "slipway.errors",
    "job": "slipway.job",
    "optuna_storage": "slipway.studies",
    "pipeline": "slipway.pipelines",
    "pipelines": "slipway.pipelines",
    "register": "slipway.registration",
    "run_pipeline": "slipway.pipeline_runs",
    "step": "slipway.pipelines",
    "step_input": "slipway.step_io",
    "step_output": "slipway.step_io",
    "track": "slipway.track",
    "train": "slipway.training",
}


use_bundled_packages()


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'slipway' has no attribute {name!r}")
    try:
        module = import_module(home)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("slipway"):
            raise
        raise ImportError(
            f"slipway.{name} needs {error.name}, which is not installed here. "
            "Add httpx, platformdirs and pydantic to the requirements."
        ) from error
    result = module if home == f"slipway.{name}" else getattr(module, name)
    globals()[name] = result
    return result


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: Any) -> None:
    """Add `%%slipway` to a notebook: `%load_ext slipway`. See `slipway.cells`."""

    def slipway(line: str, cell: str | None = None) -> None:
        """Run the cell as a job, or show a job: `%%slipway --help`, `%slipway JOB`."""
        __getattr__("cells").run(shell, line, cell)

    shell.register_magic_function(slipway, "line_cell", "slipway")
