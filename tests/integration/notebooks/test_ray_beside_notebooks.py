"""A notebook server with a cluster of a real Ray beside it, and its dashboard."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.notebooks import PASSWORD, SERVERS, Person, running_notebooks
from tests.portals import RunningPortal
from tests.processes import ROOT, Program
from tests.ray_cluster import ray_python

pytestmark = [pytest.mark.integration, pytest.mark.slow]

_CELL = """
import os, ray
ray.init(log_to_driver=False, logging_level="ERROR")
print(ray.get(ray.remote(lambda: "ran " + str(1 + 1)).remote()))
print(len(ray.nodes()), "nodes", "RAY_ADDRESS" in os.environ, os.environ["RAY_AUTH_MODE"])
"""
_TIER = {
    "name": "Ray",
    "slug": "ray",
    "resources": {"cpu_millis": 1000, "memory_bytes": 4 << 30},
    "nano_usd_per_hour": 1,
}


def _link(folder: Path, places: list[Path]) -> None:
    """Link what is in any of the places, and merge packages of several distributions."""
    for name in {entry.name for place in places for entry in place.iterdir()}:
        sources = [place / name for place in places if (place / name).exists()]
        is_namespace = all(
            source.is_dir() and not (source / "__init__.py").exists() for source in sources
        )
        if len(sources) > 1 and is_namespace:
            (folder / name).mkdir()
            _link(folder / name, sources)
        elif not (folder / name).exists():
            (folder / name).symlink_to(sources[0])


def _node(running: RunningPortal, folder: Path) -> Program:
    """Start an agent whose tasks have a Python with JupyterLab and Ray."""
    environment = folder / "both"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = [
        (prefix / "lib" / version / "site-packages").resolve()
        for prefix in (Path(sys.prefix), ray_python().parents[1])
    ]
    packages = environment / "lib" / version / "site-packages"
    _link(packages, places)
    (folder / "token").write_text(running.installation.manage("node_token", "--node", "lab").stdout)
    agent = Program(
        [
            *(sys.executable, "-m", "workers.node_agent", "--url", running.url, "--name", "lab"),
            *("--data-dir", str(folder / "node"), "--token-file", str(folder / "token")),
            *("--python", str(environment / "bin" / "python"), "--backend", "process"),
            *(part for place in places for part in ("--readable", str(place))),
            *("--address", "127.0.0.1", "--stop-tasks-on-exit"),
        ],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"},
        output=folder / "agent.log",
    )
    agent.wait_for_text("is connected to", within_s=60)
    return agent


@pytest.fixture(scope="module")
def with_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A Slipway whose notebook servers have Ray."""
    folder = tmp_path_factory.mktemp("ray-notebooks")
    with running_notebooks(
        tmp_path_factory.mktemp("slipway"),
        node=lambda running: _node(running, folder),
        SLIPWAY_EMBEDDED_RELAY="true",
    ) as running:
        with running.client("root") as root:
            root.post("/tiers", json=_TIER).raise_for_status()
        yield running


@pytest.fixture(autouse=True)
def home() -> None:
    """In place of that of the folder, whose Slipway is another one."""


def test_a_cell_uses_the_cluster_and_its_owner_sees_the_dashboard(
    with_ray: RunningPortal,
) -> None:
    bob = Person(with_ray, "bob", PASSWORD)
    server = bob.launch(framework="ray", tier="ray")
    bob.wait_for(server, "ready", within_s=180)
    lab = bob.open(server)
    printed = lab.run(lab.kernel(), _CELL, within_s=240)
    assert printed == "ran 2\n1 nodes True token\n"
    opened = bob.api.post(f"{SERVERS}/{server}/dashboards")
    assert opened.status_code == 201, opened.text
    url = httpx.URL(opened.json()["dashboard_url"])
    with httpx.Client(
        base_url=with_ray.url, headers={"Host": f"{url.host}:{url.port}"}, timeout=120
    ) as browser:
        entered = browser.get(url.raw_path.decode())
        cookie = {"Cookie": entered.headers["set-cookie"].partition(";")[0]}
        page = browser.get("/", headers=cookie)
        assert "<title>Ray Dashboard</title>" in page.text, page.text
        bob.stop(server)
        assert browser.get("/", headers=cookie).status_code in (403, 503)
