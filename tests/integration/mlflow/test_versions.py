"""Versions that an unmodified client registers from runs and models are served, or refused."""

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.processes import clean_environment, wait_for
from tests.tracking import TrackingPortal

pytestmark = pytest.mark.integration
_VERSIONS = Path(__file__).parent / "versions.py"


def foreign_sources(tracking: TrackingPortal) -> list[str]:
    """Sources of another project that exist there."""
    charlie = tracking.client("charlie")
    run = charlie.new_run()
    charlie.write_model(run)
    logged = charlie.post("logged-models", {"experiment_id": "0", "source_run_id": run})
    model_id = logged["model"]["info"]["model_id"]
    body = {"name": "theirs", "source": f"runs:/{run}/model", "run_id": run}
    charlie.post("registered-models/create", {"name": "theirs"})
    charlie.post("model-versions/create", body)
    uri = charlie.get("runs/get", run_id=run)["run"]["info"]["artifact_uri"]
    return [f"runs:/{run}/model", f"models:/{model_id}", "models:/theirs/1", f"{uri}/model"]


@pytest.mark.thorough
def test_every_kind_of_source_is_served_or_refused_at_once(tracking: TrackingPortal) -> None:
    foreign = foreign_sources(tracking)
    done = subprocess.run(
        [sys.executable, str(_VERSIONS)],
        env=clean_environment()
        | {
            "MLFLOW_TRACKING_URI": tracking.uri("alice"),
            "MLFLOW_TRACKING_TOKEN": tracking.portal.tokens["alice"],
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "GIT_PYTHON_REFRESH": "quiet",
            "FOREIGN_SOURCES": json.dumps(foreign),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    assert {kind: same for kind, (same, _) in result["loaded"].items()} == dict.fromkeys(
        result["loaded"], True
    )
    assert all(has_run for _, has_run in result["loaded"].values()), result["loaded"]
    assert result["aliased"] == "7"
    for source, (code, message) in result["refused"].items():
        assert code in ("INVALID_PARAMETER_VALUE", "RESOURCE_DOES_NOT_EXIST"), (source, message)
    theirs, nobodys = (result["refused"][each] for each in (foreign[0], _MISSING))
    assert theirs[1].replace(foreign[0], "X") == nobodys[1].replace(_MISSING, "X")
    _is_read_by_the_portal(tracking)


_MISSING = "runs:/00000000000000000000000000000000/model"


def _is_read_by_the_portal(tracking: TrackingPortal) -> None:
    """Each version's files are found where endpoints look for them."""
    slug = tracking.projects["alice"]
    with tracking.portal.client("alice") as client:
        for number in range(1, 8):
            path = f"/projects/{slug}/models/sources/versions/{number}"
            wait_for(lambda path=path: _format(client, path), f"format of {path}", within_s=60)  # type: ignore[misc]


def _format(client: httpx.Client, path: str) -> bool:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return "sklearn" in answer.text
