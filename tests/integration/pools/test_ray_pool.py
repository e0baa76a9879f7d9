"""A pool of a real Ray cluster. Slow, because Ray is installed for it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.compute.adapters.engines.ray_cluster.engine import RayEngine
from portal.compute.adapters.engines.ray_cluster.settings import RaySettings
from portal.compute.engines import Engine, EngineAway
from tests.integration.pools.engine_contract import EngineContract, order_of
from tests.integration.pools.jobs import (
    JOBS,
    SAVER,
    log_of,
    prepare,
    submit,
    wait_for_state,
    workload_of,
)
from tests.integration.pools.test_engines import no_portal
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.ray_cluster import RayCluster, running_ray

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RayCluster]:
    """A cluster with one CPU."""
    with running_ray(tmp_path_factory.mktemp("ray") / "c", cpus=1) as cluster:
        yield cluster


def _settings(cluster: RayCluster, folder: Path) -> RaySettings:
    return RaySettings(
        address=cluster.address,
        token_file=str(cluster.token_file),
        ray_python=str(cluster.python),
        folder=str(folder),
    )


class TestRayEngine(EngineContract):
    @pytest.fixture
    def engine(self, ray: RayCluster, tmp_path: Path) -> Engine:
        """The engine of the cluster."""
        return RayEngine(_settings(ray, tmp_path), url=no_portal(), python=sys.executable)

    def test_a_wrong_token_and_a_cluster_that_is_away_are_temporary(
        self, ray: RayCluster, tmp_path: Path
    ) -> None:
        (tmp_path / "token").write_text("another")
        changes = {"token_file": str(tmp_path / "token")}
        wrong = _settings(ray, tmp_path).model_copy(update=changes)
        with pytest.raises(EngineAway, match="refuses the token"):
            RayEngine(wrong, url=no_portal(), python="python3").submit(order_of())
        away = _settings(ray, tmp_path).model_copy(update={"address": no_portal()})
        with pytest.raises(EngineAway, match="does not answer"):
            RayEngine(away, url=no_portal(), python="python3").look(["x"])


@pytest.fixture(scope="module")
def slipway(tmp_path_factory: pytest.TempPathFactory, ray: RayCluster) -> Iterator[RunningPortal]:
    """A Slipway with a pool in that cluster."""
    with running_slipway(tmp_path_factory.mktemp("slipway")) as portal:
        nodes = _settings(ray, tmp_path_factory.mktemp("nodes"))
        settings = nodes.model_dump(exclude_defaults=True) | {"portal_url": portal.url}
        with portal.client("root") as root:
            prepare(root, {"name": "twin", "engine": "ray", "settings": settings})
        yield portal


def test_two_tasks_train_in_a_ray_cluster(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, nodes=2)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "succeeded", ended
        assert "rank 0 of 2" in log_of(root, job_id)
        wait_for(lambda: root.get("/pools/twin").json()["requests"] == 0, "end", within_s=60)
        assert len(root.get("/nodes").json()["items"]) == 1
        assert root.get(f"{JOBS}/{job_id}").json()["cost_nano_usd"] > 0


def test_a_cancelled_job_saves(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script=SAVER)
        wait_for(lambda: "starts at 0" in log_of(root, job_id), "first lines", within_s=120)
        root.post(f"{JOBS}/{job_id}/cancel", json={}).raise_for_status()
        assert wait_for_state(root, job_id, "stopped", "failed")["state"] == "stopped"
        assert "saved" in log_of(root, job_id)


def test_a_job_that_can_never_fit_fails_with_the_reason(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, nodes=9)
        assert wait_for_state(root, job_id, "failed", "succeeded")["state"] == "failed"
        assert "has places for 4 tasks of 0.25 CPU" in workload_of(root, job_id)["explanation"]
