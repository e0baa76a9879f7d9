"""The quickstart and the examples, typed as their pages say, on a Slipway with node and gateway."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

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


@pytest.fixture(scope="module")
def examples(typed: Type) -> Type:
    """The same, in a project that is there already, as pages of examples take for granted."""
    typed("slipway project create Examples --slug examples && slipway project use examples")
    return typed


def lines_of(page: str) -> str:
    """Return the shell snippets of a page."""
    return "\n".join(one.text for one in snippets_of(page) if one.language == "sh")


def test_the_quickstart_goes_from_data_to_predictions_and_their_cost(typed: Type) -> None:
    said = typed(lines_of("docs/quickstart.md"))
    assert "registered digits version 1" in said
    right = next(line for line in said.splitlines() if line.endswith("of 20 digits right"))
    assert int(right.split()[0]) >= 15


def test_the_text_example_is_trained_registered_and_asked(examples: Type) -> None:
    said = examples(lines_of("examples/text/README.md"), "examples/text")
    assert "registered sections version 1" in said
    assert "16 at once: " in said


def test_the_tabular_example_meets_its_late_labels(examples: Type) -> None:
    said = examples(lines_of("examples/tabular/README.md"), "examples/tabular")
    assert "registered diabetes version 1" in said
    assert "mean error of 50 labelled predictions: " in said
    assert "mean error of 100 labelled predictions: " in said


# What a page takes for granted, and what its names are called here.
TAKEN_FOR_GRANTED = """
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits
import slipway
images = load_digits().data[:2] / 16
frame, inputs, outputs = images, images, np.zeros((2, 10))
with slipway.Client() as client:
    run_id = next(iter(client.runs.list(project="digits"))).id
    KEY = client.endpoints.keys.create("digits", "page", project="digits").key
"""
NAMES = {
    '"vision"': '"digits"',
    '"churn"': '"digits"',
    "digits:3": "digits:1",
    "version(3)": "version(1)",
    "version=3": "version=1",
}


@pytest.mark.parametrize(
    ("page", "holding"),
    [
        ("datasets", "client.datasets.push"),
        ("datasets", "slipway.dataset("),
        ("experiments", "client.runs.list"),
        ("experiments", "slipway.track.surroundings"),
        ("models", "slipway.register"),
        ("predictions", "slipway.Endpoint"),
        ("spend", "client.spend.get"),
    ],
)
def test_what_pages_say_in_python_runs(typed: Type, page: str, holding: str) -> None:
    [said] = [
        one.text
        for one in snippets_of(f"docs/{page}.md")
        if one.language == "python" and holding in one.text
    ]
    for there, here in NAMES.items():
        said = said.replace(there, here)
    script = f"cat > said.py <<'END'\n{TAKEN_FOR_GRANTED}\n{said}\nEND\n"
    typed(
        f"mkdir -p data && cp digits.csv data/more.csv && cp digits.csv train.csv\n{script}"
        "SLIPWAY_PROJECT=digits sdk said.py",
        "examples/digits",
    )


def test_what_an_operator_types_runs(running: RunningPortal, tmp_path: Path) -> None:
    said = lines_of("docs/operating.md").replace("http://localhost:8000", running.url)
    said = said.replace("nightly.backup", str(tmp_path / "nightly.backup"))
    done = subprocess.run(
        ["/bin/bash", "-e", "-c", said.replace("python ", f"{sys.executable} ")],
        cwd=ROOT,
        env=running.installation.environ,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "nightly.backup").stat().st_size > 0
