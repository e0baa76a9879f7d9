"""A notebook server and a replica in a Ray cluster, through the relay. Slow: Ray is installed."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.pools.jobs import TINY
from tests.integration.serving.living import Endpoints
from tests.notebooks import PASSWORD, Person, running_notebooks
from tests.portals import RunningPortal
from tests.ray_cluster import running_ray

pytestmark = [pytest.mark.integration, pytest.mark.slow]
_STARTS_WITHIN_S = 300.0


@pytest.fixture(scope="module")
def slipway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """All of Slipway with a pool of a Ray cluster. The node of the installation takes no work."""
    environ: dict[str, Any] = {"SLIPWAY_EMBEDDED_RELAY": "true", "SLIPWAY_EMBEDDED_GATEWAY": "true"}
    with (
        running_ray(tmp_path_factory.mktemp("ray") / "c", cpus=2) as ray,
        running_notebooks(tmp_path_factory.mktemp("slipway"), **environ) as portal,
        portal.client("root") as root,
    ):
        settings = {
            "address": ray.address,
            "token_file": str(ray.token_file),
            "ray_python": str(ray.python),
            "folder": str(tmp_path_factory.mktemp("nodes")),
            "portal_url": portal.url,
        }
        root.post("/tiers", json=TINY).raise_for_status()
        pool = {"name": "twin", "engine": "ray", "settings": settings}
        root.post("/pools", json=pool).raise_for_status()
        (node,) = root.get("/nodes").json()["items"]
        root.post(f"/nodes/{node['name']}/cordon", json={}).raise_for_status()
        portal.program.wait_for_text("relay ready", within_s=120)
        yield portal


def test_a_notebook_runs_in_a_ray_cluster(slipway: RunningPortal) -> None:
    bob = Person(slipway, "bob", PASSWORD)
    server = bob.launch("pooled", pool="twin")
    bob.wait_for(server, "ready", within_s=_STARTS_WITHIN_S)
    desk = bob.open(server)
    assert desk.run(desk.kernel(), "print(6 * 7)").strip() == "42"


def test_a_replica_in_a_ray_cluster_answers(slipway: RunningPortal) -> None:
    endpoints = Endpoints(slipway)
    endpoints.create("doubling", endpoints.register(2, golden=2), pool="twin", tier="cpu-tiny")
    endpoints.until("doubling", 2, within_s=_STARTS_WITHIN_S)
