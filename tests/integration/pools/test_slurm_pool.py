"""A pool of a real Slurm cluster: slurmctld and two slurmd of this machine."""

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.integration.pools.jobs import (
    JOBS,
    SAVER,
    job_body,
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


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster of two nodes."""
    with running_slurm(tmp_path_factory.mktemp("slurm") / "cluster") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slipway(
    tmp_path_factory: pytest.TempPathFactory, slurm: SlurmCluster
) -> Iterator[RunningPortal]:
    """A Slipway with a pool in that cluster."""
    with running_slipway(tmp_path_factory.mktemp("slipway")) as portal:
        settings = {
            "partition": "main",
            "slurm_conf": str(slurm.conf),
            "folder": str(tmp_path_factory.mktemp("nodes")),
            "portal_url": portal.url,
        }
        with portal.client("root") as root:
            prepare(root, {"name": "twin", "engine": "slurm", "settings": settings})
        yield portal


def _jobs_of(slurm: SlurmCluster) -> set[str]:
    """Return the numbers of all jobs that Slurm knows."""
    return set(slurm.run("squeue", "--noheader", "--states=all", "--format=%A").split())


def test_two_tasks_train_on_two_nodes_of_slurm(slipway: RunningPortal, slurm: SlurmCluster) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, nodes=2)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "succeeded", ended
        wait_for(lambda: root.get("/pools/twin").json()["requests"] == 0, "end", within_s=60)
        assert len(root.get("/nodes").json()["items"]) == 1
        assert root.get(f"{JOBS}/{job_id}").json()["cost_nano_usd"] > 0
        states = slurm.run("squeue", "--noheader", "--states=all", "--format=%T %D").splitlines()
        assert [state for state in states if state.endswith(" 2")] == ["COMPLETED 2"]


@pytest.mark.thorough
def test_the_reason_of_slurm_is_the_reason(slipway: RunningPortal, slurm: SlurmCluster) -> None:
    slurm.run("scontrol", "update", "partition=main", "state=down")
    with slipway.client("root") as root:
        job_id = submit(root)
        wait_for(
            lambda: "PartitionDown" in workload_of(root, job_id)["explanation"],
            "reason of Slurm",
            within_s=60,
        )
        slurm.run("scontrol", "update", "partition=main", "state=up")
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"


@pytest.mark.thorough
def test_what_slurm_refuses_fails_with_its_words(slipway: RunningPortal) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, nodes=3)
        ended = wait_for_state(root, job_id, "failed", "stopped", "succeeded")
        assert ended["state"] == "failed"
        assert "Node count specification invalid" in ended["explanation"], ended


def test_a_job_cancelled_in_slurm_saves_and_is_stopped(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script=SAVER)
        wait_for_state(root, job_id, "running")
        wait_for(lambda: "starts at 0" in log_of(root, job_id), "first lines", within_s=60)
        handle = slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%A").strip()
        slurm.run("scancel", handle)
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped", "lost")
        assert ended["state"] == "stopped", ended
        assert "cancelled in Slurm" in ended["explanation"]
        assert "saved" in log_of(root, job_id)


@pytest.mark.thorough
def test_a_node_of_slurm_that_dies_costs_one_attempt(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script="import time; time.sleep(15)")
        wait_for_state(root, job_id, "running")
        (name,) = slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()
        slurm.run("scontrol", "update", f"nodename={name}", "state=down", "reason=test")
        wait_for(lambda: workload_of(root, job_id)["attempt"] == 2, "next attempt", within_s=90)
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"
        # A node that has registered again since then is idle, and has nothing to resume.
        if "down" in slurm.run("sinfo", "--noheader", f"--nodes={name}", "--format=%T"):
            slurm.run("scontrol", "update", f"nodename={name}", "state=resume")
        slurm.wait_until_idle()


@pytest.mark.thorough
def test_a_slurmd_that_is_killed_with_its_steps_costs_one_attempt(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, script="import time; time.sleep(15)")
        wait_for_state(root, job_id, "running")
        (name,) = slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()
        slurm.programs[name].signal(signal.SIGKILL)
        slurm.programs[name].wait()
        own = {program.pid for program in slurm.programs.values()}
        for pid in set(slurm.processes_of_steps()) - own:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: workload_of(root, job_id)["attempt"] == 2, "next attempt", within_s=180)
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"
        slurm.start(name)
        slurm.wait_until_idle()


@pytest.mark.thorough
def test_a_job_that_slurm_forgets_is_submitted_again(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    slurm.run("scontrol", "update", "partition=main", "state=down")
    with slipway.client("root") as root:
        job_id = submit(root)
        wait_for(
            lambda: "PartitionDown" in workload_of(root, job_id)["explanation"],
            "reason of Slurm",
            within_s=60,
        )
        slurm.programs["slurmctld"].signal(signal.SIGKILL)
        slurm.programs["slurmctld"].wait()
        for path in (slurm.folder / "state").glob("job_state*"):
            path.unlink()
        slurm.start("slurmctld")
        ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped")
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1), ended
        slurm.wait_until_idle()


@pytest.mark.thorough
def test_a_controller_that_is_away_costs_nothing(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    known = _jobs_of(slurm)
    slurm.programs["slurmctld"].signal(signal.SIGKILL)
    slurm.programs["slurmctld"].wait()
    with slipway.client("root") as root:
        job_id = submit(root)
        wait_for(
            lambda: "Slurm does not answer" in workload_of(root, job_id)["explanation"],
            "the problem",
            within_s=120,
        )
        slurm.start("slurmctld")
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"
        assert len(_jobs_of(slurm) - known) == 1


@pytest.mark.thorough
@pytest.mark.skipif(os.getuid() != 0, reason="it proves an account of the system")
def test_an_account_of_the_system_proves_nothing(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        settings = {"as_person": True, "slurm_conf": str(slurm.conf)}
        pool = {"name": "personal", "engine": "slurm", "settings": settings}
        root.post("/pools", json=pool).raise_for_status()
        answer = root.post(JOBS, json=job_body(root, pool="personal"))
        assert answer.json()["code"] == "account_not_linked"
        command = root.post("/pools/personal/account", json={}).raise_for_status().json()["command"]
        assert root.post("/pools/personal/account", json={}).json()["command"] == command
        slurm.run(*shlex.split(command))
        wait_for(
            lambda: root.get("/pools/personal/account").json()["problem"], "refusal", within_s=60
        )
        account = root.get("/pools/personal/account").json()
        assert (account["name"], account["command"]) == (None, None)
        assert account["problem"].startswith("root is an account of the system")
