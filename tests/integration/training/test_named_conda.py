"""One named environment of conda on real processes: a job, a notebook server and an endpoint.

The channel is on loopback. What JupyterLab and the model server need stands in for packages of an
index: one package names all distributions of this installation, whose modules PYTHONPATH finds.
"""

import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path

import pytest

from portal.config.local_node import base_environment
from tests.conda_channel import Channel, Package, python_package, running_channel
from tests.integration.serving.living import Endpoints
from tests.live import ROOT
from tests.notebooks import PASSWORD, Person
from tests.portals import PEOPLE, RunningPortal, running_slipway
from tests.processes import Program, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]
OWNER = "alice"
# Tasks may read it.
STACK = os.path.realpath(sys.prefix)
VARIABLES = {
    "JUPYTER_PATH": f"{STACK}/share/jupyter",
    "JUPYTER_CONFIG_PATH": f"{STACK}/etc/jupyter",
    "JUPYTERLAB_DIR": f"{STACK}/share/jupyter/lab",
    "PYTHONPATH": os.path.realpath(sysconfig.get_paths()["purelib"]),
}
FILE = f"""\
channels: [conda-forge]
dependencies: [python, stack, weather >=1]
variables: {{STAGE: research, {", ".join(f"{name}: {value}" for name, value in VARIABLES.items())}}}
"""
CODE = "import os, sys, weather; print('rain', weather.RAIN, os.environ['STAGE'], sys.base_prefix)"
WEATHER = Package(
    "weather",
    "1.2",
    depends=["python"],
    noarch=True,
    files={"site-packages/weather.py": b"RAIN = 4.5\n"},
)


def stack() -> Package:
    """Return a package that has what a server and a model server import."""
    files: dict[str, bytes] = {}
    for distribution in distributions(path=[VARIABLES["PYTHONPATH"]]):
        name = f"{re.sub('[-.]+', '_', distribution.name)}-{distribution.version}"
        for file in ("METADATA", "entry_points.txt"):
            if (text := distribution.read_text(file)) is not None:
                files[f"site-packages/{name}.dist-info/{file}"] = text.encode()
    return Package("stack", noarch=True, depends=["python"], files=files)


@dataclass
class Lab:
    """A Slipway with notebooks and a gateway, and the channel of its environments."""

    endpoints: Endpoints
    channel: Channel
    folder: Path

    def cli(self, *words: str) -> str:
        """Run a command as the owner of the project, and return its output."""
        running = self.endpoints.running
        environ = os.environ | {
            "SLIPWAY_URL": running.url,
            "SLIPWAY_TOKEN": running.tokens[OWNER],
            "SLIPWAY_CONFIG_DIR": str(self.folder / "config"),
            "PYTHONPATH": str(ROOT / "platform"),
        }
        done = subprocess.run(
            [sys.executable, "-m", "slipway", *words, "--project", "vision"],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def node(running: RunningPortal) -> Program:
    """Start a node whose tasks may read the modules of this installation."""
    folder = running.installation.data_dir.parent / "node"
    folder.mkdir()
    token = running.installation.manage("node_token", "--node", "lab").stdout
    (folder / "token").write_text(token)
    agent = Program(
        [
            *(sys.executable, "-m", "workers.node_agent", "--url", running.url, "--name", "lab"),
            *("--data-dir", str(folder / "data"), "--token-file", str(folder / "token")),
            *("--address", "127.0.0.1", "--python", sys.executable, "--readable", STACK),
            "--stop-tasks-on-exit",
        ],
        env=base_environment(dict(os.environ)),
        output=folder / "agent.log",
    )
    agent.wait_for_text("is connected to", within_s=60)
    return agent


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Everything, with the environment `geo` built ahead."""
    folder = tmp_path_factory.mktemp("named")
    with (
        running_channel(folder / "channel") as channel,
        running_slipway(
            folder / "slipway",
            PEOPLE,
            node=node,
            SLIPWAY_EMBEDDED_GATEWAY="true",
            SLIPWAY_EMBEDDED_NOTEBOOKS="true",
            SLIPWAY_CONDA_CHANNELS=f"conda-forge={channel.url}",
        ) as running,
    ):
        channel.add(python_package(), WEATHER, stack())
        code = folder / "code"
        code.mkdir()
        (code / "environment.yml").write_text(FILE)
        (code / "train.py").write_text(CODE)
        lab = Lab(Endpoints(running, OWNER), channel, code)
        lab.cli("env", "create", "geo", "-f", "environment.yml")
        assert "Ready" in lab.cli("env", "build", "geo") or "ready" in lab.cli("env", "show", "geo")
        yield lab


def test_a_job_runs_in_it_and_its_frozen_list_makes_the_same(lab: Lab) -> None:
    output = lab.cli("train", "train.py", "--environment", "geo", "--tier", "cpu-small", "--watch")
    assert "rain 4.5 research" in output
    shown = lab.cli("env", "show", "geo")
    assert "weather >=1" in shown
    lab.cli("env", "freeze", "geo", "--output", "frozen.txt")
    text = (lab.folder / "frozen.txt").read_text()
    assert f"{lab.channel.address(WEATHER)}#sha256:{lab.channel.sha256(WEATHER)}" in text
    lab.channel.add(replace(WEATHER, version="1.3"))
    lab.cli("env", "create", "exact", "-f", "frozen.txt")
    lab.cli("env", "build", "exact")
    again = lab.cli("env", "freeze", "exact")
    assert again.splitlines() == text.splitlines()


def test_a_notebook_server_runs_in_it(lab: Lab) -> None:
    person = Person(lab.endpoints.running, OWNER, PASSWORD)
    server = person.launch("geo", environment="geo@1")
    wait_for(lambda: person.look(server)["state"] in ("ready", "failed"), "a server", within_s=300)
    assert person.look(server)["state"] == "ready", person.look(server)
    desk = person.open(server)
    output = desk.run(desk.kernel(), CODE)
    assert "rain 4.5 research" in output
    assert "attempt-" in output, "the kernel runs in the environment"
    person.stop(server)


def test_an_endpoint_serves_in_it(lab: Lab) -> None:
    endpoints = lab.endpoints
    version = endpoints.register(2, golden=2)
    endpoints.create("double", version, environment="geo@1")
    endpoints.until("double", 2, within_s=300)
    (replica,) = wait_for(
        lambda: endpoints.call("GET", "endpoints/double/replicas"), "a replica", within_s=30
    )
    digest = endpoints.call("GET", f"workloads/{replica['workload']}")["environment"]
    shown = endpoints.call("GET", f"environments/{digest}")
    assert "weather >=1" in shown["conda"]
