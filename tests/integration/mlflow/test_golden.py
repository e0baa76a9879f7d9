"""A model that MLflow alone has logged is served once it predicts what it predicted there."""

import os
import secrets
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.portals import RunningPortal
from tests.processes import ROOT, clean_environment, wait_for

pytestmark = pytest.mark.integration
_SCRIPT = Path(__file__).parent / "naming_and_logging.py"
_IN_JOBS = ROOT / "workers/launcher/in_jobs"
# The control worker looks every ten seconds; replicas start cold on a busy machine.
_LOOKS_WITHIN_S = 120.0
_STARTS_WITHIN_S = 180.0


@pytest.mark.thorough
def test_what_a_run_named_proves_the_models_that_it_logged(
    whole_slipway: Callable[[], RunningPortal],
) -> None:
    running = whole_slipway()
    slug = f"proved-{secrets.token_hex(3)}"
    with running.client("root") as api:
        api.post("/projects", json={"name": slug}).raise_for_status()
        _run_script(f"{running.url}/mlflow/{slug}", running.tokens["root"])

        def fetch(path: str) -> Any:
            return api.get(f"/projects/{slug}/{path}").raise_for_status().json()

        for name in ("churn", "sum"):
            golden = wait_for(
                lambda name=name: fetch(f"models/{name}/versions/1")["golden"],  # type: ignore[misc]
                f"golden predictions of {name}",
                within_s=_LOOKS_WITHIN_S,
                every_s=0.5,
            )
            assert golden["rows"] == 16
            body = {"name": name, "model": name, "version": "1"}
            api.post(f"/projects/{slug}/endpoints", json=body).raise_for_status()
            wait_for(
                lambda name=name: fetch(f"endpoints/{name}")["state"] == "serving",  # type: ignore[misc]
                f"{name} to be proved",
                within_s=_STARTS_WITHIN_S,
                every_s=0.5,
            )
            api.delete(f"/projects/{slug}/endpoints/{name}").raise_for_status()
        assert fetch("models/dice/versions/1")["golden"] is None


def _run_script(address: str, token: str) -> None:
    done = subprocess.run(
        [sys.executable, str(_SCRIPT)],
        env=clean_environment()
        | {
            "MLFLOW_TRACKING_URI": address,
            "MLFLOW_TRACKING_TOKEN": token,
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "GIT_PYTHON_REFRESH": "quiet",
            "PYTHONPATH": os.pathsep.join(map(str, (_IN_JOBS, ROOT / "platform"))),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "[slipway]" not in done.stderr, done.stderr[-4000:]
