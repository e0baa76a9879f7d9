"""A wheel in the code of a job, from the command line to the endpoint of the model it logs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.integration.serving.living import Endpoints, running_endpoints
from tests.live import ROOT
from tests.tracking import Rest
from tests.workers.node_agent.packages import make_source, make_wheel

pytestmark = [pytest.mark.integration, pytest.mark.thorough]
_SCRIPT = """\
import os
import acme_tools, harbour
print("acme", acme_tools.version, "harbour", harbour.version, os.environ["MLFLOW_RUN_ID"])
"""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """A Slipway with a node, a gateway and MLflow's server."""
    folder = tmp_path_factory.mktemp("archives")
    with running_endpoints(folder, SLIPWAY_EMBEDDED_TRACKING="true") as lab:
        resources = {"cpu_millis": 1000, "memory_bytes": 2 << 30}
        body = {"name": "job", "slug": "job", "resources": resources, "nano_usd_per_hour": 10**9}
        lab.api.post("/tiers", json=body).raise_for_status()
        yield lab


def _train(endpoints: Endpoints, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return _command(endpoints, folder, "train", "train.py", "--watch", "--tier", "job", *options)


def _command(endpoints: Endpoints, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    running = endpoints.running
    project = endpoints.path.rpartition("/")[2]
    return subprocess.run(
        [sys.executable, "-m", "slipway", *words, "--project", project],
        cwd=folder,
        env=os.environ
        | {
            "SLIPWAY_URL": running.url,
            "SLIPWAY_TOKEN": running.tokens[endpoints.owner],
            "SLIPWAY_CONFIG_DIR": str(folder.parent / "config"),
            "PYTHONPATH": str(ROOT / "platform"),
        },
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_a_wheel_of_the_code_trains_a_model_and_serves_it(
    endpoints: Endpoints, tmp_path: Path
) -> None:
    folder = tmp_path / "code"
    (folder / "wheels").mkdir(parents=True)
    (folder / "train.py").write_text(_SCRIPT)
    make_wheel(folder / "wheels", "acme_tools", "1.0", requires="harbour")
    make_source(folder / "wheels", "harbour", "2.0")
    wheel = "acme_tools-1.0-py3-none-any.whl"
    requirements = folder / "requirements.txt"
    requirements.write_text(f"--find-links ./wheels\n./wheels/{wheel}\n")
    done = _train(endpoints, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "acme 1.0 harbour 2.0" in line]
    run = line.split()[-1]

    slug = endpoints.path.rpartition("/")[2]
    token = endpoints.running.tokens[endpoints.owner]
    client = Rest(f"{endpoints.running.url}/mlflow/{slug}", {"Authorization": f"Bearer {token}"})
    place = client.get("runs/get", run_id=run)["run"]["info"]["artifact_uri"]
    settings = {"factor": 3, "refuses_above": None}
    at = f"{urlsplit(place).path.strip('/')}/model"
    root = endpoints.write(at, settings, "acme-tools==1.0\n")
    (code,) = (root / "code").iterdir()
    code.write_text(f"import acme_tools, harbour\n{code.read_text()}")
    version = endpoints.call("POST", "models/double/versions", {"source": f"runs:/{run}/model"})
    endpoints.create("tripling", version["version"])
    endpoints.until("tripling", 3.0, within_s=300)

    requirements.write_text(f"./wheels/{wheel.replace('1.0', '2.0')}\n")
    refused = _train(endpoints, folder)
    assert refused.returncode != 0
    shown = " ".join(refused.stderr.split())
    assert "Line 1 of requirements.txt" in shown
    assert "the submitted folder has no file wheels/acme_tools-2.0" in shown


def test_a_folder_with_a_wheel_is_an_environment_of_jobs_and_endpoints(
    endpoints: Endpoints, tmp_path: Path
) -> None:
    folder = tmp_path / "packages"
    (folder / "wheels").mkdir(parents=True)
    wheel = make_wheel(folder / "wheels", "acme_maps", "3.0").name
    (folder / "requirements.txt").write_text(f"./wheels/{wheel}\n")
    for words in (("create", "maps", "--code", "."), ("build", "maps")):
        done = _command(endpoints, folder, "env", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("import acme_maps\nprint('maps', acme_maps.version)\n")
    done = _train(endpoints, code, "--environment", "maps")
    assert "maps 3.0" in done.stdout, done.stdout + done.stderr

    # A model that was logged elsewhere finds the package in the environment that it is served in.
    at = f"workspaces/{endpoints.project}/models/mapping"
    root = endpoints.write(at, {"factor": 4, "refuses_above": None})
    (module,) = (root / "code").iterdir()
    module.write_text(f"import acme_maps\n{module.read_text()}")
    source = {"source": f"mlflow-artifacts:/{at}"}
    version = endpoints.call("POST", "models/double/versions", source)
    endpoints.create("mapping", version["version"], environment="maps")
    endpoints.until("mapping", 4.0, within_s=300)
