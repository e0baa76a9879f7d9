"""The quickstart, typed as its page says, on a Slipway with a node and a gateway."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.pages import snippets_of
from tests.live import ROOT
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.browser
# A job that trains, and a replica that starts cold, on a machine that other tests keep busy.
WITHIN_S = 900
Type = Callable[..., str]


@pytest.fixture
def running(whole_slipway: Callable[[], RunningPortal]) -> RunningPortal:
    """A Slipway as `make up` starts it; another one for who tries again what ended half way."""
    program = whole_slipway()
    wait_for(lambda: "tracking ready" in program.log(), "MLflow's server", within_s=120)
    return program


@pytest.fixture
def typed(running: RunningPortal, tmp_path: Path) -> Type:
    """Type lines of a shell, signed in as root, in a copy of the examples."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "examples", folder / "examples")
    programs = folder / "bin"
    programs.mkdir()
    for name, rest in {"python": "", "slipway": "-m slipway "}.items():
        place = f"PYTHONPATH={ROOT / 'platform'} " if rest else ""
        (programs / name).write_text(f'#!/bin/sh\n{place}exec {sys.executable} {rest}"$@"\n')
        (programs / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if "SLIPWAY" not in name}
    environment |= {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "SLIPWAY_CONFIG_DIR": str(folder / "config"),
        "TOKEN": running.tokens["root"],
        "MLFLOW_TRACKING_URI": f"{running.url}/mlflow/digits",
        "MLFLOW_TRACKING_TOKEN": running.tokens["root"],
    }

    def type_lines(script: str, at: str = ".") -> str:
        script = script.replace(
            "http://localhost:8002", f"http://127.0.0.1:{running.installation.gateway_port}"
        )
        done = subprocess.run(
            ["/bin/bash", "-e", "-o", "pipefail", "-c", script],
            cwd=folder / at,
            env=environment,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{running.log()[-4000:]}"
        return done.stdout

    (programs / "sdk").write_text(
        f'#!/bin/sh\nPYTHONPATH={ROOT / "platform"} exec {sys.executable} "$@"\n'
    )
    (programs / "sdk").chmod(0o755)
    type_lines(f'printf %s "$TOKEN" | slipway login {running.url} --token -')
    return type_lines


def lines_of(page: str) -> str:
    """Return the shell snippets of a page."""
    return "\n".join(snippet.text for snippet in snippets_of(page) if snippet.language == "sh")


@pytest.mark.thorough
def test_the_quickstart_goes_from_data_to_predictions_and_their_cost(typed: Type) -> None:
    output = typed(f"{lines_of('docs/quickstart.md')}\n{lines_of('docs/predictions.md')}")
    assert "registered digits version 1" in output
    right = next(line for line in output.splitlines() if line.endswith("of 20 digits right"))
    assert int(right.split()[0]) >= 15
    (scores,) = json.loads(output.splitlines()[-1])["predictions"]
    assert max(range(10), key=scores.__getitem__) == 0
