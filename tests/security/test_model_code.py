"""A model is code. It runs in its replica, and in no process that holds keys or secrets."""

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from slipway.schemas.serving import ModelFormat
from tests.turns import thorough_after
from tests.workers.machines import eventually
from tests.workers.serving import Plane, plane

MLMODEL = """
flavors:
  python_function:
    loader_module: canary_loader
    python_version: 3.11.0
    code: code
model_uuid: 0123456789abcdef0123456789abcdef
utc_time_created: '2026-11-21 00:00:00'
"""


class Canary:
    """Tells which process it was unpickled in, by a file of its number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        script = f"import os, pathlib; pathlib.Path({str(self.folder)!r}, str(os.getpid())).touch()"
        return exec, (script,)


def pickled(folder: Path, canaries: Path) -> dict[str, Any]:
    """A `.pt` that is a pickle."""
    with (folder / "model.pt").open("wb") as file:
        pickle.dump(Canary(canaries), file)
    return {"format": ModelFormat.TORCHSCRIPT, "entry": "model.pt"}


def exported(folder: Path, canaries: Path) -> dict[str, Any]:
    """A `.pt2` whose weights are a pickle."""
    torch.save(Canary(canaries), folder / "model.pt2")
    return {"format": ModelFormat.TORCH_EXPORT, "entry": "model.pt2"}


def loader(folder: Path, canaries: Path) -> dict[str, Any]:
    """An MLflow model that names the module which loads it."""
    (folder / "MLmodel").write_text(MLMODEL)
    (folder / "code").mkdir()
    (folder / "code" / "canary_loader.py").write_text(
        f"import os, pathlib\npathlib.Path({str(canaries)!r}, str(os.getpid())).touch()\n"
        "def _load_pyfunc(path):\n    raise ValueError('it sang')\n"
    )
    return {"format": ModelFormat.MLFLOW, "entry": None}


@pytest.fixture(scope="module")
def served() -> Iterator[Plane]:
    """A gateway that serves from one replica."""
    with plane() as dataplane:
        replica = dataplane.replica()
        dataplane.start_gateway()
        dataplane.serve(replica)
        yield dataplane


@pytest.mark.torch
@pytest.mark.parametrize("make", thorough_after(1, [pickled, exported, loader]))
def test_the_code_of_a_model_runs_in_its_replica_alone(
    served: Plane, tmp_path: Path, make: Any
) -> None:
    canaries, folder = tmp_path / "canaries", tmp_path / "model"
    canaries.mkdir()
    folder.mkdir()
    name = f"rep-{make.__name__}"
    replica = served.replica(name, wait=False, model_dir=str(folder), **make(folder, canaries))
    status = replica.process.child.wait(60)
    # It could not be loaded, and whatever ran of it ran there.
    assert status == 3, replica.process.log.read_text()[-2000:]
    assert {int(path.name) for path in canaries.iterdir()} <= {replica.process.child.pid}
    if make is loader:
        assert list(canaries.iterdir()), "the canary did not sing at all"
    report = eventually(lambda: served.portal.replicas[name][-1])
    assert report.reason.startswith("Loading the ")
    assert served.predict([[1, 2, 3, 4]]).status == 200


def test_the_gateway_holds_no_library_that_could_load_a_model(served: Plane) -> None:
    assert served.gateway is not None
    maps = Path(f"/proc/{served.gateway.child.pid}/maps").read_text()
    for library in ("torch", "onnxruntime", "numpy", "pandas", "sklearn", "pyarrow"):
        assert f"/{library}/" not in maps


@pytest.mark.thorough
def test_a_replica_keeps_neither_secret_nor_token_in_what_its_children_inherit(
    served: Plane, tmp_path: Path
) -> None:
    path = tmp_path / "environment"
    folder = tmp_path / "model"
    (folder / "code").mkdir(parents=True)
    (folder / "MLmodel").write_text(MLMODEL)
    (folder / "code" / "canary_loader.py").write_text(
        "import json, os, pathlib\n"
        f"pathlib.Path({str(path)!r}).write_text(json.dumps(dict(os.environ)))\n"
        "def _load_pyfunc(path):\n    raise ValueError('it sang')\n"
    )
    replica = served.replica(
        "rep-environment", wait=False, model_dir=str(folder), entry=None, format=ModelFormat.MLFLOW
    )
    replica.process.child.wait(60)
    environment = json.loads(path.read_text())
    assert "SLIPWAY_REPLICA" not in environment
    assert replica.spec.secret not in json.dumps(environment)
    assert os.environ["PATH"] == environment["PATH"]
