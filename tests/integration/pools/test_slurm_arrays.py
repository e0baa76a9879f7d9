"""Work that a real Slurm cluster gets at once, as arrays, and what they must not mix up."""

import getpass
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from slipway.resources.sweeps import sweep_body
from slipway.schemas.training import JobIn
from tests.integration.pools.jobs import (
    JOBS,
    job_body,
    prepare,
    submit,
    wait_for_state,
    workload_of,
)
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.slurm_accounting import PROGRAMS as ACCOUNTING
from tests.slurm_cluster import PROGRAMS, SlurmCluster, missing_programs, running_slurm

_MISSING = missing_programs((*PROGRAMS, *ACCOUNTING))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.thorough,
    pytest.mark.skipif(bool(_MISSING), reason=f"Slurm's accounting is not installed: {_MISSING}"),
]
_TRIAL = """
import mlflow, os
mlflow.log_metric("accuracy", float(os.environ.get("SLIPWAY_SWEEP_VALUE", "0.5")))
"""
_WAITS = "import time; time.sleep(600)"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster of two nodes with accounting."""
    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    with running_slurm(folder, has_accounting=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def slipway(
    tmp_path_factory: pytest.TempPathFactory, slurm: SlurmCluster
) -> Iterator[RunningPortal]:
    """A Slipway with a pool in that cluster."""
    with running_slipway(tmp_path_factory.mktemp("slipway")) as portal:
        settings = {
            "partition": "main",
            "account": "vision",
            "slurm_conf": str(slurm.conf),
            "folder": str(tmp_path_factory.mktemp("nodes")),
            "portal_url": portal.url,
        }
        with portal.client("root") as root:
            prepare(root, {"name": "twin", "engine": "slurm", "settings": settings})
        yield portal


def submit_together(root: httpx.Client, count: int, script: str) -> list[str]:
    """Submit jobs that are ordered in one round: nothing is while the pool takes no requests."""
    root.patch("/pools/twin", json={"most_requests": 1}).raise_for_status()
    first = submit(root, script=_WAITS)
    wait_for_state(root, first, "running")
    ids = [submit(root, script=script) for _ in range(count)]
    root.patch("/pools/twin", json={"most_requests": 50}).raise_for_status()
    wait_for(
        lambda: all("Slurm" in workload_of(root, each)["explanation"] for each in ids),
        "an answer of Slurm to all",
        within_s=60,
    )
    root.post(f"{JOBS}/{first}/cancel", json={}).raise_for_status()
    return ids


def close_partition(slurm: SlurmCluster, *, is_closed: bool) -> None:
    """Let jobs of the partition wait, or start."""
    state = "down" if is_closed else "up"
    slurm.run("scontrol", "update", "partition=main", f"state={state}")


def handles_of(root: httpx.Client, ids: Sequence[str]) -> list[str]:
    """Return the handles that the events of jobs name last."""
    handles = []
    for job_id in ids:
        events = root.get(f"{JOBS}/{job_id}/events").json()["items"]
        texts = [event["message"] for event in events if "(Slurm " in event["message"]]
        handles.append(texts[-1].partition("(Slurm ")[2].partition(")")[0])
    return handles


def test_each_element_waits_ends_and_is_cancelled_for_itself(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        ids = _waiting_together(root, slurm, 4)
        handles = handles_of(root, ids)
        array = handles[0].partition("_")[0]
        assert sorted(handles) == [f"{array}_{index}" for index in range(4)]
        assert len(slurm.run("squeue", "--noheader", "--states=PENDING").splitlines()) == 1
        for job_id, handle in zip(ids, handles, strict=True):
            words = f"Slurm says about {handle}: PartitionDown"
            wait_for(partial(_says, root, job_id, words), words, within_s=60)
        root.post(f"{JOBS}/{ids[1]}/cancel", json={}).raise_for_status()
        slurm.run("scancel", handles[2])
        assert wait_for_state(root, ids[1], "stopped", "failed")["state"] == "stopped"
        ended = wait_for_state(root, ids[2], "stopped", "failed")
        assert "cancelled in Slurm" in ended["explanation"], ended
        close_partition(slurm, is_closed=False)
        for job_id in (ids[0], ids[3]):
            ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped")
            assert (ended["state"], ended["attempt"]) == ("succeeded", 1), ended
        wait_for(
            lambda: root.get("/pools/twin/usage").json()["accounted"] >= 2, "bill", within_s=90
        )


def _says(root: httpx.Client, job_id: str, words: str) -> bool:
    return words in workload_of(root, job_id)["explanation"]


def _waiting_together(root: httpx.Client, slurm: SlurmCluster, count: int) -> list[str]:
    """Submit jobs as one array that waits in Slurm."""
    root.patch("/pools/twin", json={"most_requests": 1}).raise_for_status()
    first = submit(root, script=_WAITS)
    wait_for_state(root, first, "running")
    close_partition(slurm, is_closed=True)
    ids = [submit(root) for _ in range(count)]
    root.patch("/pools/twin", json={"most_requests": 50}).raise_for_status()
    wait_for(
        lambda: all("Slurm says" in workload_of(root, each)["explanation"] for each in ids),
        "an answer of Slurm to all",
        within_s=60,
    )
    root.post(f"{JOBS}/{first}/cancel", json={}).raise_for_status()
    wait_for_state(root, first, "stopped")
    return ids


def test_an_element_has_the_token_of_no_other(slipway: RunningPortal, slurm: SlurmCluster) -> None:
    with slipway.client("root") as root:
        ids = submit_together(root, 2, _WAITS)
        for job_id in ids:
            wait_for_state(root, job_id, "running")
        (array,) = {handle.partition("_")[0] for handle in handles_of(root, ids)}
        shown = slurm.run("scontrol", "show", "job", array)
        assert "slj_" not in shown
        assert f"ArrayJobId={array}" in shown
        scripts = [*slurm.folder.glob("spool-*/job*/slurm_script")]
        assert scripts == []
        for pid in slurm.processes_of_steps():
            for name in ("environ", "cmdline"):
                with suppress(OSError):
                    assert Path(f"/proc/{pid}/{name}").read_bytes().count(b"slj_") <= 1
        for job_id in ids:
            root.post(f"{JOBS}/{job_id}/cancel", json={}).raise_for_status()
            wait_for_state(root, job_id, "stopped")


def test_a_limit_on_submitted_jobs_is_the_reason_and_refuses_nothing(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    limit = ("sacctmgr", "--immediate", "modify", "user", getpass.getuser(), "set")
    with slipway.client("root") as root:
        root.patch("/pools/twin", json={"most_requests": 1}).raise_for_status()
        first = submit(root, script=_WAITS)
        wait_for_state(root, first, "running")
        ids = [submit(root) for _ in range(4)]
        slurm.run(*limit, "MaxSubmitJobs=2")
        root.patch("/pools/twin", json={"most_requests": 50}).raise_for_status()
        words = "Slurm takes no more jobs now: AssocMaxSubmitJobLimit"
        wait_for(
            lambda: any(words in workload_of(root, each)["explanation"] for each in ids),
            words,
            within_s=60,
        )
        slurm.run(*limit, "MaxSubmitJobs=-1")
        for job_id in ids:
            ended = wait_for_state(root, job_id, "succeeded", "failed", "stopped")
            assert (ended["state"], ended["attempt"]) == ("succeeded", 1), ended
        root.post(f"{JOBS}/{first}/cancel", json={}).raise_for_status()


def test_a_sweep_is_a_few_submissions(slipway: RunningPortal, slurm: SlurmCluster) -> None:
    with slipway.client("root") as root:
        body: dict[str, Any] = job_body(root, _TRIAL)
        sweep = sweep_body(
            JobIn(**body),
            name="digits",
            parameters={"lr": "choice(1,2,3,4,5,6,7,8)"},
            metric="accuracy:max",
            trials=8,
            parallel=8,
            algorithm="grid",
        )
        answer = root.post("/projects/vision/sweeps", json=sweep.model_dump(mode="json"))
        address = f"/projects/vision/sweeps/{answer.raise_for_status().json()['id']}"
        wait_for(
            lambda: root.get(address).json()["state"] != "running", "end of the sweep", within_s=300
        )
        shown = root.get(address).json()
        assert (shown["state"], shown["complete"]) == ("finished", 8), shown
        numbers = slurm.run("squeue", "--noheader", "--states=all", "--array", "--format=%F %j")
        trials = [line for line in numbers.splitlines() if line.endswith("-many")]
        assert len(set(trials)) < len(trials), numbers
