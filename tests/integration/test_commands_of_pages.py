"""The commands of pages, copied as they stand, one page after the other, on a whole Slipway.

README.md, docs/environments.md, docs/models.md, docs/node-groups.md, docs/pipelines.md,
docs/reports.md, docs/schedules.md, docs/service-accounts.md and docs/sweeps.md.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.docs.pages import pages, snippets_of
from tests.live import ROOT
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.workers.node_agent.packages import make_wheel
from tests.workers.serving import linear_model

pytestmark = [pytest.mark.integration, pytest.mark.thorough]
WITHIN_S = 600
# With the parameters that schedules pass on.
_EVENTS = """
import slipway

@slipway.step
def train(rows: int, data: str, ref: str) -> float:
    return float(rows)

@slipway.pipeline
def retrain(rows: int = 1000, data: str = "digits:1", ref: str = "main"):
    train(rows, data, ref)
"""
PROJECT = "vision"


@pytest.fixture(scope="module")
def slipway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A Slipway with a node that installs from a folder of wheels, and MLflow's server."""
    folder = tmp_path_factory.mktemp("pages")
    wheels = folder / "wheels"
    wheels.mkdir()
    for version in ("1.0", "2.0"):
        make_wheel(wheels, "lighthouse", version)
    with (
        running_slipway(
            folder,
            SLIPWAY_EMBEDDED_TRACKING="true",
            PIP_NO_INDEX="1",
            PIP_FIND_LINKS=str(wheels),
        ) as running,
        running.client("root") as root,
    ):
        wait_for(lambda: "tracking ready" in running.log(), "MLflow's server", within_s=120)
        for name in (PROJECT, "churn"):
            root.post("/projects", json={"name": name}).raise_for_status()
        yield running


class Reader:
    """Somebody who copies the commands of a page into a shell, in a folder of their own."""

    def __init__(self, running: RunningPortal, folder: Path) -> None:
        self._running, self.folder = running, folder
        programs = folder.parent / "bin"
        programs.mkdir()
        program = programs / "slipway"
        place = f"PYTHONPATH={ROOT / 'platform'}"
        program.write_text(f'#!/bin/sh\n{place} exec {sys.executable} -m slipway "$@"\n')
        program.chmod(0o755)
        others = {name: value for name, value in os.environ.items() if "SLIPWAY" not in name}
        self._environment = others | {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "SLIPWAY_CONFIG_DIR": str(folder.parent / "config"),
            "SLIPWAY_URL": running.url,
            "SLIPWAY_TOKEN": running.tokens["root"],
            "SLIPWAY_PROJECT": PROJECT,
        }

    def type(self, script: str, at: Path | None = None, **environ: str) -> str:
        """Run lines of a shell, each of which must succeed, and return what they print."""
        done = subprocess.run(
            ["/bin/bash", "-e", "-o", "pipefail", "-c", script],
            cwd=at or self.folder,
            env=self._environment | environ,
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{self._running.log()[-3000:]}"
        return done.stdout

    def write(self, files: Mapping[str, str]) -> None:
        """Write files of text."""
        for name, text in files.items():
            (self.folder / name).parent.mkdir(exist_ok=True)
            (self.folder / name).write_text(text)


@pytest.fixture
def reader(slipway: RunningPortal, tmp_path: Path) -> Reader:
    """A reader in a folder with a script that takes any parameters."""
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('trained')\n")
    return Reader(slipway, folder)


def commands_of(page: str) -> str:
    """Return the shell snippets of a page that say that they are typed."""
    return "\n".join(snippet.text for snippet in snippets_of(page) if snippet.language == "sh")


def test_the_settings_explain_themselves(reader: Reader) -> None:
    assert "SLIPWAY_DATA_DIR" in reader.type(commands_of("README.md"), ROOT)


def test_the_commands_on_environments_run(reader: Reader) -> None:
    (reader.folder / "dist").mkdir()
    made = make_wheel(reader.folder / "dist", "acme_tools", "1.0").name
    reader.write(
        {
            "requirements.txt": "lighthouse==1.0\n",
            "newer.txt": "lighthouse==2.0\n",
            "gpu/requirements.txt": "-r ../newer.txt\n",
            "gpu/wheels.txt": f"-r requirements.txt\n../dist/{made}\n",
            ".gitignore": "dist/\n",
        }
    )
    output = reader.type(commands_of("docs/environments.md"))
    assert "trees@2" in output
    assert "acme-tools @" in output
    assert "lighthouse==2.0" in (reader.folder / "requirements.lock").read_text()


def test_the_commands_on_models_run(reader: Reader) -> None:
    linear_model(reader.folder)
    torch = "import torch; torch.jit.save(torch.jit.script(torch.nn.Linear(4, 2)), 'model.pt')"
    tensors = '[{"name": "x", "type": "float32", "shape": [-1, %d]}]'
    reader.write(
        {"signature.json": f'{{"inputs": {tensors % 4}, "outputs": {tensors % 2}}}'},
    )
    reader.type(f'{sys.executable} -W ignore -c "{torch}"')
    reader.type(commands_of("docs/models.md"), SLIPWAY_PROJECT="churn")
    assert "digits" in reader.type("slipway model list", SLIPWAY_PROJECT="churn")


def test_the_commands_on_node_groups_run(reader: Reader) -> None:
    output = reader.type(commands_of("docs/node-groups.md"))
    assert "gpu" in output
    reader.type("slipway node-group delete gpu --yes || true")


def flow() -> str:
    """The pipeline of docs/pipelines.md."""
    (code,) = re.findall(
        r"```python\n(# flow\.py\n.*?)```", pages()["docs/pipelines.md"], re.DOTALL
    )
    return str(code)


def test_the_commands_on_pipelines_run(reader: Reader) -> None:
    reader.write({"flow.py": flow()})
    output = reader.type(commands_of("docs/pipelines.md"))
    assert "prepare" in output


def test_the_commands_on_schedules_run(reader: Reader) -> None:
    reader.write({"flow.py": _EVENTS, "digits.csv": "x,y\n1,2\n"})
    reader.type("slipway dataset push digits digits.csv")
    reader.type(commands_of("docs/schedules.md"))
    listed = reader.type("slipway schedule list")
    assert all(name in listed for name in ("daily", "retrain", "deploy"))


def test_the_commands_on_service_accounts_run(reader: Reader) -> None:
    output = reader.type(commands_of("docs/service-accounts.md"))
    assert "nightly" in output


def test_the_commands_on_reports_run(reader: Reader) -> None:
    reader.write({"README.md": "# Vision\n"})
    reader.type(commands_of("docs/reports.md"))
    assert "# Vision" in reader.type("slipway project readme vision")


def test_the_commands_on_sweeps_run(reader: Reader) -> None:
    reader.type(commands_of("docs/sweeps.md"))
    assert reader.type("slipway sweep list --json").count('"swp_') >= 3
