"""The client of Triton, as its users install it, against an endpoint of ours."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.machines import ROOT
from tests.workers.serving import KEY, Plane, plane

pytestmark = pytest.mark.integration
SCRIPT = """
import sys
import numpy as np
import tritonclient.http as http

client = http.InferenceServerClient(sys.argv[1])
headers = {"Authorization": "Bearer " + sys.argv[2]}
assert client.is_server_live(headers)
assert client.is_server_ready(headers)
assert client.is_model_ready("digits", "1", headers)
assert client.get_server_metadata(headers)["name"] == "slipway"
assert client.get_model_metadata("digits", headers=headers)["inputs"][0]["name"] == "x"
rows = np.array([[1, 2, 3, 4], [0.5, 0, 0, 0]], np.float32)
for binary in (False, True):
    tensor = http.InferInput("x", rows.shape, "FP32")
    tensor.set_data_from_numpy(rows, binary_data=binary)
    wanted = [http.InferRequestedOutput("y", binary_data=binary)]
    for outputs in (None, wanted):
        found = client.infer("digits", [tensor], outputs=outputs, request_id="r", headers=headers)
        assert found.as_numpy("y").tolist() == [[20, 20], [1, 1]], found.get_response()
        assert found.get_response()["id"] == "r"
try:
    client.infer("digits", [tensor], headers={"Authorization": "Bearer wrong"})
except http.InferenceServerException as error:
    assert "key of the endpoint is missing" in error.message(), error
else:
    raise SystemExit("a wrong key was taken")
print("understood")
"""


@pytest.fixture(scope="module")
def served() -> Iterator[Plane]:
    """A gateway that serves the endpoint `digits`."""
    with plane() as dataplane:
        replica = dataplane.replica()
        dataplane.start_gateway()
        dataplane.serve(replica)
        yield dataplane


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client and all that it needs."""
    folder = tmp_path_factory.mktemp("triton")
    requirements = folder / "wanted.txt"
    requirements.write_text("tritonclient[http]\nnumpy\n")
    packages = folder / "packages"
    by_uv: list[str | Path]
    by_uv = [sys.executable, ROOT / "scripts" / "uv_install.py", requirements, "--target", packages]
    if subprocess.run(by_uv, check=False).returncode != 0:
        by_pip = ("-m", "pip", "install", "-q", "--target", packages, "-r", requirements)
        subprocess.run([sys.executable, *by_pip], check=True)
    return packages


def test_the_client_of_triton_understands_every_answer(served: Plane, client: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, f"127.0.0.1:{served.port}", KEY],
        env=os.environ | {"PYTHONPATH": str(client)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "understood\n"), done.stderr
