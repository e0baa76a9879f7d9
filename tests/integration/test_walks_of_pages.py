"""The quickstart, and each README.md of the examples, typed as they say.

On a Slipway with a node and a gateway; tests/examples runs the same projects without one.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.docs.pages import snippets_of
from tests.live import ROOT
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for

pytestmark = pytest.mark.integration
# A job that trains, and a replica that starts cold, on a machine that other tests keep busy.
WITHIN_S = 900
Type = Callable[..., str]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A Slipway as `make up` starts it."""
    folder = tmp_path_factory.mktemp("walks")
    wanted = {"SLIPWAY_EMBEDDED_GATEWAY": "true", "SLIPWAY_EMBEDDED_TRACKING": "true"}
    with running_slipway(folder, **wanted) as found:
        wait_for(lambda: "tracking ready" in found.log(), "MLflow's server", within_s=120)
        yield found


@pytest.fixture(scope="module")
def typed(running: RunningPortal, tmp_path_factory: pytest.TempPathFactory) -> Type:
    """Type lines of a shell, signed in as root, in a copy of the examples."""
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(ROOT / "examples", folder / "examples")
    programs = folder / "bin"
    programs.mkdir()
    for name, rest in {"python": "", "slipway": "-m slipway "}.items():
        place = f"PYTHONPATH={ROOT / 'platform'} " if rest else ""
        (programs / name).write_text(f'#!/bin/sh\n{place}exec {sys.executable} {rest}"$@"\n')
        (programs / name).chmod(0o755)
    surroundings = {name: value for name, value in os.environ.items() if "SLIPWAY" not in name}
    surroundings |= {
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
            env=surroundings,
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
    return "\n".join(one.text for one in snippets_of(page) if one.language == "sh")


def test_the_quickstart_goes_from_data_to_predictions_and_their_cost(typed: Type) -> None:
    said = typed(lines_of("docs/quickstart.md"))
    assert "registered digits version 1" in said
    right = next(line for line in said.splitlines() if line.endswith("of 20 digits right"))
    assert int(right.split()[0]) >= 15


@pytest.fixture
def project(running: RunningPortal) -> Iterator[str]:
    """A project of the test's own, whose endpoints are gone afterwards: their names are unique."""
    slug = f"walk-{secrets.token_hex(4)}"
    with running.client("root") as root:
        root.post("/projects", json={"name": "Walk", "slug": slug}).raise_for_status()
        yield slug
        here = f"/projects/{slug}/endpoints"
        for endpoint in root.get(here).json()["items"]:
            root.delete(f"{here}/{endpoint['name']}").raise_for_status()
        wait_for(lambda: not root.get(here).json()["items"], "end of endpoints", within_s=120)


def walk(typed: Type, project: str, example: str, *shorter: tuple[str, str]) -> str:
    """Type what the README.md of an example says, with options that make its training short."""
    script = lines_of(f"examples/{example}/README.md")
    for long, short in shorter:
        assert long in script
        script = script.replace(long, short)
    return typed(f"export SLIPWAY_PROJECT={project}\n{script}", at=f"examples/{example}")


def test_the_digits_are_trained_by_three_strategies(
    typed: Type, project: str, running: RunningPortal
) -> None:
    walk(typed, project, "digits", ("--watch", "--param epochs=1 --watch"))
    with running.client("root") as root:
        jobs = root.get(f"/projects/{project}/jobs").json()["items"]
        runs = root.get(f"/projects/{project}/runs").json()["items"]
    assert {(job["strategy"], job["workload"]["state"]) for job in jobs} == {
        ("ddp", "succeeded"),
        ("zero3", "succeeded"),
        ("ps=1", "succeeded"),
    }
    assert len(jobs) == 3
    # The same batches and the same seed: rounding may move an image or two.
    reached = sorted(run["metrics"]["accuracy"] for run in runs)
    assert len(reached) == 3
    assert reached[-1] - reached[0] < 0.02


def test_the_texts_are_served_to_one_client_and_to_sixteen_at_once(
    typed: Type, project: str
) -> None:
    short = "--param epochs=1 --param texts=320 --param register=sections"
    said = walk(typed, project, "text", ("--param register=sections", short))
    assert "registered sections version 1" in said
    told = re.findall(r"^(\d+) at once: .* (\d+) of 200 right$", said, re.MULTILINE)
    assert [clients for clients, _ in told] == ["1", "16"]
    assert told[0][1] == told[1][1], "who asks beside it changes no answer"


def test_labels_of_the_table_come_late_and_are_measured(
    typed: Type, project: str, running: RunningPortal
) -> None:
    said = walk(typed, project, "tabular")
    halves = re.findall(r"mean error of (\d+) labelled predictions: ([0-9.]+)", said)
    assert [count for count, _ in halves] == ["50", "100"]

    with running.client("root") as root:
        page = f"/projects/{project}/endpoints/diabetes/monitoring"

        def measured() -> Any:
            quality = root.get(page).raise_for_status().json()["quality"]
            return quality if quality["labelled"] == 100 else None

        quality = wait_for(measured, "quality by all labels", within_s=120)
    assert quality["coverage"] == 1
    assert abs(quality["figures"]["mae"] - float(halves[1][1])) < 0.1
