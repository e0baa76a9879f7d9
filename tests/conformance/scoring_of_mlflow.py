"""A pytest plug-in for MLflow's tests of its scoring server: a gateway of Slipway answers instead.

Loaded with `-p scoring_of_mlflow` in a checkout of MLflow by `scoring_suite`.
"""

import json
import os
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd
import pytest
import requests
from mlflow.artifacts import download_artifacts

GATEWAY = os.environ["SLIPWAY_SUITE_GATEWAY"]
STAGE = os.environ["SLIPWAY_SUITE_STAGE"]
KEY = os.environ["SLIPWAY_SUITE_KEY"]
_EXCLUDED = tomllib.loads(Path(__file__).with_name("excluded_scoring.toml").read_text())
# The suite imports these on top for two tests; what needs them is excluded where they are missing.
_FOREIGN = (
    "keras",
    "tensorflow",
    "tensorflow.keras",
    "tensorflow.keras.layers",
    "tensorflow.keras.models",
    "tensorflow.keras.optimizers",
)
_stood_in: list[str] = []


class _StandIn(ModuleType):
    __version__ = "3.0.0"

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return object()


def score_through_the_gateway(model_uri: str, data: Any, content_type: str) -> requests.Response:
    """Stand for the suite's score_model_in_process."""
    folder = Path(download_artifacts(artifact_uri=model_uri)).resolve()
    staged = requests.post(STAGE, json={"model": str(folder)}, timeout=120)
    if staged.status_code != 200:
        raise AssertionError(f"the replica is not ready: {staged.text}")
    if isinstance(data, pd.DataFrame):
        if content_type.startswith("text/csv"):
            data = data.to_csv(index=False)
        elif "parquet" in content_type:
            data = data.to_parquet()
        else:
            data = json.dumps({"dataframe_split": data.to_dict(orient="split")})
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": content_type}
    return requests.post(f"{GATEWAY}/invocations", data=data, headers=headers, timeout=60)


def pytest_configure() -> None:
    """Replace what scores, and what is not installed, before the suite's module imports it."""
    theirs: Any = __import__("tests.pyfunc.utils", fromlist=["score_model_in_process"])
    theirs.score_model_in_process = score_through_the_gateway
    try:
        __import__("keras")
    except ImportError:
        for name in _FOREIGN:
            sys.modules[name] = _StandIn(name)
            _stood_in.append(name)


def _asks(item: pytest.Item) -> bool:
    """Whether a test asks a server; the others call functions inside of MLflow's."""
    function = getattr(item, "function", None)
    return function is not None and "score_model_in_process" in function.__code__.co_names


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Expect exactly what the list excludes to fail, so that one which passes is noticed too."""
    config.hook.pytest_deselected(items=[item for item in items if not _asks(item)])
    items[:] = [item for item in items if _asks(item)]
    for name in _stood_in:
        sys.modules.pop(name, None)
    pickling: Any = __import__("cloudpickle")
    for item in items:
        module = getattr(item, "module", None)
        if module is not None:
            # A replica does not know the suite's classes: they travel with the model.
            pickling.register_pickle_by_value(module)
        name = item.name.partition("[")[0]
        for why, names in _EXCLUDED.items():
            if name in names["tests"] or item.name in names["tests"]:
                reason = f"{why}: {names['why']}"
                item.add_marker(pytest.mark.xfail(reason=reason, strict=names.get("strict", True)))
