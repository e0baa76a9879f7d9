"""Five layouts of public projects, each run on a real platform by one command, unchanged.

The Dockerfile needs an engine (`scripts/docker-test-engine.sh`). Without one, its command says so.
"""

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from portal.config.local_node import base_environment
from slipway import Client
from tests.conda_channel import PLACEHOLDER, Package, python_package, running_channel
from tests.live import ROOT
from tests.portals import RunningPortal, running_slipway
from tests.processes import Program, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.slow]
PROJECT = "newcomers"
GIB = 1024**3
SOCKET, IMAGE = os.environ.get("TEST_DOCKER_SOCKET"), os.environ.get("TEST_DOCKER_IMAGE")
REQUIREMENTS = {
    "README.md": "# Requirements\n",
    "requirements.txt": "iniconfig==2.1.0  # read the settings\n",
    "settings.ini": "[train]\nepochs = 2\n",
    "train.py": """
        import iniconfig
        settings = iniconfig.IniConfig("settings.ini")
        for epoch in range(int(settings["train"]["epochs"])):
            print("epoch", epoch)
    """,
}
LOCKED = {
    "pyproject.toml": """
        [project]
        name = "acme"
        version = "1.0"
        requires-python = ">=3.11"
        dependencies = ["iniconfig"]
    """,
    "uv.lock": """
        version = 1
        requires-python = ">=3.11"

        [[package]]
        name = "acme"
        version = "1.0"
        source = { editable = "." }
        dependencies = [{ name = "iniconfig" }]

        [[package]]
        name = "iniconfig"
        version = "2.1.0"
        source = { registry = "https://packages.example.org/wheels" }
        wheels = [{ url = "https://packages.example.org/iniconfig-2.1.0-py3-none-any.whl", \
hash = "sha256:9deba5723312380e77435581c6bf4935c94cbfab9b1ed33ef8d238ea168eb760", size = 6050 }]
    """,
    "src/acme/__init__.py": "from importlib.metadata import version\nUSES = version('iniconfig')\n",
    "scripts/train.py": "import acme\nprint('acme uses iniconfig', acme.USES)\n",
}
CONDA = {
    "environment.yml": """
        name: research
        channels: [conda-forge]
        dependencies: [python, weather >=1, pip, {pip: [iniconfig]}]
        variables: {STAGE: research}
    """,
    "train.py": """
        import os, sys
        import iniconfig, weather
        print("rain", weather.rain(), os.environ["STAGE"], sys.prefix == os.environ["CONDA_PREFIX"])
        print(os.popen("forecast").read())
    """,
}
# What conda-forge is for this platform: a channel on loopback.
WEATHER = Package(
    "weather",
    "1.2",
    depends=["python", "forecast"],
    noarch=True,
    files={"site-packages/weather.py": b"def rain():\n    return 4.5\n"},
)
FORECAST = Package(
    "forecast",
    files={"bin/forecast": f"#!{PLACEHOLDER}/bin/python\nprint('more rain')\n".encode()},
    executables=["bin/forecast"],
    prefixed=["bin/forecast"],
    is_new_format=False,
)
DOCKERFILE = {
    "Dockerfile": f"FROM {IMAGE or 'python:3.12-slim'}\nRUN echo 7 > /seed\nENV STAGE=train\n",
    "train.py": "import os\nprint('seed', open('/seed').read().strip(), os.environ['STAGE'])\n",
}
NOTEBOOKS = {
    "notebooks/report.ipynb": json.dumps(
        {
            "nbformat": 4,
            "nbformat_minor": 5,
            "metadata": {
                "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}
            },
            "cells": [
                {
                    "cell_type": "code",
                    "id": "a",
                    "execution_count": None,
                    "metadata": {},
                    "outputs": [],
                    "source": "print('total', sum(range(10)))",
                }
            ],
        }
    ),
    "notebooks/data.csv": "1,2\n",
}


@dataclass
class Newcomer:
    """Somebody with a folder of code and the command line."""

    running: RunningPortal
    folder: Path

    def run(self, files: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
        """Run one command in a folder with these files."""
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip("\n"))
        environ = os.environ | {
            "SLIPWAY_URL": self.running.url,
            "SLIPWAY_TOKEN": self.running.tokens["alice"],
            "SLIPWAY_CONFIG_DIR": str(self.folder.parent / "config"),
            "PYTHONPATH": str(ROOT / "platform"),
        }
        return subprocess.run(
            [sys.executable, "-m", "slipway", *words, "--project", PROJECT, "--tier", "job"],
            cwd=self.folder,
            env=environ,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def output_of(self, files: Mapping[str, str], *words: str) -> str:
        """Submit a job by one command, watch it to its good end, and return the output."""
        done = self.run(files, *words, "--watch")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """All of Slipway, and a node for containers where there is an engine."""
    folder = tmp_path_factory.mktemp("newcomers")
    with (
        running_channel(folder / "channel") as channel,
        running_slipway(
            folder,
            SLIPWAY_EMBEDDED_TRACKING="true",
            SLIPWAY_CONDA_CHANNELS=f"conda-forge={channel.url}",
        ) as running,
        running.client("root") as root,
        Client(running.url, token=running.tokens["alice"]) as client,
    ):
        resources = {"cpu_millis": 1000, "memory_bytes": 2 * GIB}
        body = {"name": "job", "slug": "job", "resources": resources, "nano_usd_per_hour": 10**9}
        root.post("/tiers", json=body).raise_for_status()
        client.projects.create(PROJECT)
        channel.add(python_package(), Package("pip", noarch=True), FORECAST, WEATHER)
        agent = container_node(running, folder / "docked") if SOCKET else None
        yield running
        if agent is not None:
            agent.signal(signal.SIGTERM)
            agent.wait(60)


def container_node(running: RunningPortal, folder: Path) -> Program:
    """Start an agent whose tasks run in containers of the test engine."""
    folder.mkdir()
    token = running.installation.manage("node_token", "--node", "docked").stdout
    (folder / "token").write_text(token)
    (folder / "nothing.txt").touch()
    agent = Program(
        [
            *(sys.executable, "-m", "workers.node_agent", "--url", running.url),
            *("--name", "docked", "--data-dir", str(folder / "node")),
            *("--token-file", str(folder / "token"), "--address", "127.0.0.1"),
            *("--backend", "docker", "--docker-socket", str(SOCKET)),
            *("--docker-image", str(IMAGE), "--requirements", str(folder / "nothing.txt")),
            "--stop-tasks-on-exit",
        ],
        env=base_environment(dict(os.environ)),  # how packages are reached here
        output=folder / "agent.log",
    )
    agent.wait_for_text("is connected to", within_s=60)
    with running.client("root") as root:

        def offers_containers() -> bool:
            nodes = root.get("/nodes").json()["items"]
            return any("docker" in node["backends"] for node in nodes)

        wait_for(offers_containers, "a node for containers", within_s=60)
    return agent


@pytest.fixture
def newcomer(platform: RunningPortal, tmp_path: Path) -> Newcomer:
    """Somebody with an empty folder."""
    folder = tmp_path / "code"
    folder.mkdir()
    return Newcomer(platform, folder)


def test_a_folder_with_requirements(newcomer: Newcomer) -> None:
    assert "epoch 1" in newcomer.output_of(REQUIREMENTS, "train", "train.py")


def test_a_project_with_a_lock_of_uv(newcomer: Newcomer) -> None:
    output = newcomer.output_of(LOCKED, "train", "scripts/train.py")
    assert "acme uses iniconfig 2.1.0" in output


def test_a_folder_with_a_conda_environment(newcomer: Newcomer) -> None:
    """Its packages come from a channel, and the preview names the file."""
    output = newcomer.output_of(CONDA, "train", "train.py")
    assert "rain 4.5 research True" in output
    assert "more rain" in output
    quote = newcomer.run({}, "train", "train.py", "--quote")
    shown = " ".join((quote.stdout + quote.stderr).split())
    assert "3 conda packages and 1 of pip from environment.yml, from conda-forge." in shown


def test_a_folder_with_a_dockerfile(newcomer: Newcomer) -> None:
    command = ("train", "train.py", "--backend", "docker")
    if SOCKET:
        output = newcomer.output_of(DOCKERFILE, *command)
        assert "seed 7 train" in output
        return
    refused = newcomer.run(DOCKERFILE, *command)
    assert refused.returncode != 0
    assert "No node offers the back end docker" in " ".join(refused.stderr.split())


def test_a_folder_of_notebooks(newcomer: Newcomer) -> None:
    output = newcomer.output_of(NOTEBOOKS, "notebook", "run", "notebooks/report.ipynb")
    assert "succeeded" in output
