"""Models that are one file, from a file of somebody's machine to predictions of a replica."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import slipway
from tests.integration.serving.living import Endpoints, running_endpoints
from tests.live import ROOT
from tests.processes import wait_for
from tests.turns import thorough_after
from tests.workers.serving import linear_model

pytestmark = [pytest.mark.integration, pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
# A replica starts cold on a machine that other tests keep busy.
STARTS_WITHIN_S = 200.0
SIGNATURE = {
    "inputs": [{"name": "x", "type": "float32", "shape": [-1, 4]}],
    "outputs": [{"name": "y", "type": "float32", "shape": [-1, 2]}],
}
GOLDEN = ([[1, 2, 3, 4], [0.5, 0, 0, 0]], [[20, 20], [1, 1]])


class Doubled(torch.nn.Module):
    """Twice the sum, twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return two columns."""
        total = 2 * x.sum(1, keepdim=True)
        return torch.cat([total, total], 1)


def scripted(folder: Path) -> Path:
    """A TorchScript file."""
    torch.jit.save(torch.jit.script(Doubled()), str(folder / "model.pt"))
    return folder / "model.pt"


def exported(folder: Path) -> Path:
    """A torch.export file, for any number of rows."""
    rows = torch.export.Dim("rows", min=1, max=1024)
    shapes = {"x": {0: rows}}
    program = torch.export.export(Doubled(), (torch.ones(3, 4),), dynamic_shapes=shapes)
    torch.export.save(program, str(folder / "model.pt2"))
    return folder / "model.pt2"


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """A Slipway with a node and a gateway."""
    with running_endpoints(
        tmp_path_factory.mktemp("formats"), SLIPWAY_EMBEDDED_TRACKING="true"
    ) as lab:
        headers = {"Authorization": f"Bearer {lab.running.tokens[lab.owner]}"}
        listed = f"{artifacts_of(lab)}?path="
        wait_for(
            lambda: lab.gateway.get(listed, headers=headers).is_success,
            "answer of the store of artifacts",
            within_s=STARTS_WITHIN_S,
        )
        yield lab


@pytest.fixture
def room(endpoints: Endpoints) -> Iterator[None]:
    """Give what a test has served back: the node has places for few replicas."""
    yield
    for name in endpoints.keys:
        endpoints.call("DELETE", f"endpoints/{name}")
    endpoints.keys.clear()


def artifacts_of(endpoints: Endpoints) -> str:
    """Return where MLflow clients find the artifacts of the project."""
    project = endpoints.path.rpartition("/")[2]
    return f"{endpoints.running.url}/mlflow/{project}/api/2.0/mlflow-artifacts/artifacts"


@pytest.fixture
def client(endpoints: Endpoints) -> Iterator[slipway.Client]:
    """A client of who owns the project."""
    token = endpoints.running.tokens[endpoints.owner]
    with slipway.Client(endpoints.running.url, token) as new_client:
        yield new_client


def answers(endpoints: Endpoints, name: str, model: str) -> Any:
    """Create an endpoint of a model, wait until it serves, and ask it; returns what it says."""
    endpoints.create(name, 1, model=model)
    endpoints.state(name, "serving", within_s=STARTS_WITHIN_S)
    body = {"inputs": [[1, 2, 3, 4], [0, 0, 0, 1]]}
    headers = {"Authorization": f"Bearer {endpoints.keys[name]}"}

    def prediction() -> Any:
        answer = endpoints.gateway.post(f"/v1/{name}/invocations", json=body, headers=headers)
        return answer.json() if answer.status_code == 200 else None

    return wait_for(prediction, f"answer of {name}", within_s=30)


@pytest.mark.usefixtures("room")
@pytest.mark.parametrize(
    ("make", "kind", "given"),
    thorough_after(0, [(scripted, "torchscript", SIGNATURE), (exported, "torch_export", None)]),
)
def test_a_file_of_torch_is_registered_and_answers(
    endpoints: Endpoints,
    client: slipway.Client,
    tmp_path: Path,
    make: Any,
    kind: str,
    given: dict[str, Any] | None,
) -> None:
    project = endpoints.path.rpartition("/")[2]
    made = slipway.register(
        make(tmp_path),
        kind,
        format=kind,
        signature=given,
        golden=GOLDEN,
        project=project,
        client=client,
    )
    assert made.fault is None
    assert made.signature is not None
    assert made.signature.inputs[0].shape == [-1, 4]
    name = kind.replace("_", "-")
    assert answers(endpoints, name, kind) == {"predictions": [[20.0, 20.0], [2.0, 2.0]]}
    batching = client.models.version(kind, 1, project=project).batching
    assert (batching.mode, batching.verdict) == ("rows", "proved"), batching
    key = endpoints.keys[name]
    endpoint = slipway.Endpoint(name, project=project, key=key, client=client)
    with pytest.raises(slipway.errors.InvalidInput, match=r"\[-1, 4\] was expected"):
        endpoint.predict([[1, 2, 3]])


@pytest.mark.thorough
@pytest.mark.usefixtures("room")
def test_an_onnx_file_is_registered_on_the_command_line_and_answers(
    endpoints: Endpoints, tmp_path: Path
) -> None:
    project = endpoints.path.rpartition("/")[2]
    environment = os.environ | {
        "SLIPWAY_URL": endpoints.running.url,
        "SLIPWAY_TOKEN": endpoints.running.tokens[endpoints.owner],
        "PYTHONPATH": str(ROOT / "platform"),
    }
    path = linear_model(tmp_path) / "model.onnx"
    words = ["model", "register", str(path), "linear", "--project", project, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "slipway", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["format"] == "onnx"
    assert answers(endpoints, "linear", "linear") == {"predictions": [[20.0, 20.0], [2.0, 2.0]]}
    # What an MLflow client downloads is the file that was registered.
    place = json.loads(done.stdout)["source"].partition(":/")[2]
    token = endpoints.running.tokens[endpoints.owner]
    stored = endpoints.gateway.get(
        f"{artifacts_of(endpoints)}/{place}/model.onnx",
        headers={"Authorization": f"Bearer {token}"},
    )
    assert stored.content == path.read_bytes()
