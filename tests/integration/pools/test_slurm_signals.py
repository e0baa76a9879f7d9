"""Slurm ends allocations by its own signals: time limit, preemption, `scancel --signal`."""

from collections.abc import Iterator

import pytest

from tests.integration.pools.jobs import (
    JOBS,
    log_of,
    prepare,
    submit,
    wait_for_state,
    workload_of,
)
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        bool(missing_programs()), reason=f"Slurm is not installed: {missing_programs()}"
    ),
]
# Jobs of `urgent` preempt those of `main`, and jobs of `short` have a minute.
_CONF = (
    "PreemptType=preempt/partition_prio",
    "PreemptMode=CANCEL",
    "PartitionName=main Nodes=n1 Default=YES MaxTime=60 PriorityTier=1 State=UP",
    "PartitionName=short Nodes=n1 DefaultTime=1 MaxTime=1 PriorityTier=1 State=UP",
    "PartitionName=urgent Nodes=n1 MaxTime=60 PriorityTier=2 State=UP",
)
# Saves as it goes on, and does not handle SIGTERM: the default action ends it.
WITHOUT_HANDLER = """
import time
from slipway import job
saved = job.current().checkpoint_dir / "step"
start = int(saved.read_text()) if saved.exists() else 0
print("starts at", start, flush=True)
if not start:
    saved.parent.mkdir(parents=True, exist_ok=True)
    saved.write_text("7")
    print("saved", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster of one node, whose partitions preempt each other."""
    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    with running_slurm(folder, nodes=1, cpus=1, more_lines=_CONF) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slipway(
    tmp_path_factory: pytest.TempPathFactory, slurm: SlurmCluster
) -> Iterator[RunningPortal]:
    """A Slipway with the pools `twin` and `short`."""
    with running_slipway(tmp_path_factory.mktemp("slipway")) as portal:
        settings = {
            "slurm_conf": str(slurm.conf),
            "folder": str(tmp_path_factory.mktemp("nodes")),
            "portal_url": portal.url,
        }
        with portal.client("root") as root:
            prepare(root, _pool("twin", "main", settings))
            root.post("/pools", json=_pool("short", "short", settings)).raise_for_status()
        yield portal


def _pool(name: str, partition: str, settings: dict[str, str]) -> dict[str, object]:
    return {"name": name, "engine": "slurm", "settings": settings | {"partition": partition}}


@pytest.mark.thorough
@pytest.mark.parametrize("cause", ["signal", "preemption", "limit"])
def test_a_script_without_a_handler_goes_on_from_its_last_checkpoint(
    slipway: RunningPortal, slurm: SlurmCluster, cause: str
) -> None:
    with slipway.client("root") as root:
        pool = "short" if cause == "limit" else "twin"
        job_id = submit(root, script=WITHOUT_HANDLER, pool=pool)
        wait_for_state(root, job_id, "running")
        wait_for(lambda: "saved" in log_of(root, job_id), "checkpoint", within_s=60)
        if cause == "signal":
            # As Slurm itself does before a time limit: to every process of the steps.
            slurm.run("scancel", "--signal=TERM", _running(slurm))
        if cause == "preemption":
            slurm.run("sbatch", "--partition=urgent", "--output=/dev/null", "--wrap=true")
        wait_for(lambda: workload_of(root, job_id)["attempt"] == 2, "next attempt", within_s=120)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "succeeded", ended
        assert "starts at 7" in log_of(root, job_id)
        events = root.get(f"{JOBS}/{job_id}/events").json()["items"]
        assert any("engine ended the allocation" in event["message"] for event in events), events


@pytest.mark.thorough
def test_a_script_without_a_handler_that_somebody_cancels_in_slurm_is_stopped(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script=WITHOUT_HANDLER)
        wait_for_state(root, job_id, "running")
        wait_for(lambda: "saved" in log_of(root, job_id), "checkpoint", within_s=60)
        slurm.run("scancel", _running(slurm))
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "stopped", ended
        assert "cancelled in Slurm" in ended["explanation"]


def _running(slurm: SlurmCluster) -> str:
    return slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%A").strip()
