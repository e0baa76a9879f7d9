"""Pools of a real Slurm cluster with accounting: bills, limits, and a slurmdbd that is away."""

import signal
from collections.abc import Iterator

import pytest

from tests.integration.pools.jobs import JOBS, prepare, submit, wait_for_state, workload_of
from tests.portals import RunningPortal, running_slipway
from tests.processes import wait_for
from tests.slurm_accounting import PROGRAMS as ACCOUNTING
from tests.slurm_cluster import PROGRAMS, SlurmCluster, missing_programs, running_slurm

# nano-USD an hour of the tier cpu-tiny.
HALF_PRICE = 10_000_000
_MISSING = missing_programs((*PROGRAMS, *ACCOUNTING))
pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(bool(_MISSING), reason=f"Slurm's accounting is not installed: {_MISSING}"),
]


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
    """A Slipway with a pool in that cluster, at half the price."""
    with running_slipway(tmp_path_factory.mktemp("slipway")) as portal:
        settings = {
            "partition": "main",
            "account": "vision",
            "slurm_conf": str(slurm.conf),
            "folder": str(tmp_path_factory.mktemp("nodes")),
            "portal_url": portal.url,
        }
        pool = {"name": "twin", "engine": "slurm", "settings": settings, "price_percent": 50}
        with portal.client("root") as root:
            prepare(root, pool)
        yield portal


def test_slurms_accounting_stands_beside_the_bill(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        job_id = submit(root, nodes=2, script="import time; time.sleep(3)")
        assert wait_for_state(root, job_id, "succeeded", "failed")["state"] == "succeeded"
        wait_for(
            lambda: root.get("/pools/twin/usage").json()["accounted"],
            "accounting",
            within_s=90,
        )
        usage = root.get("/pools/twin/usage").json()
        job = root.get(f"{JOBS}/{job_id}").json()
        (latest,) = usage["latest"]
        elapsed, cpu, tres = (
            slurm.run(
                *(
                    "sacct",
                    "--noheader",
                    "--parsable2",
                    "--allocations",
                    f"--jobs={latest['handle']}",
                ),
                "--format=ElapsedRaw,CPUTimeRAW,AllocTRES",
            )
            .strip()
            .split("|")
        )
        assert usage["accounted_s"] == 2 * int(elapsed)
        assert usage["accounted_cpu_s"] == int(cpu)
        assert latest["resources"] == tres
        assert usage["billed_nano_usd"] == job["cost_nano_usd"]
        # Slurm counts from before the agents join until after they have left.
        assert 3 <= usage["billed_s"] / 2 <= int(elapsed) + 1
        assert usage["accounted_nano_usd"] == HALF_PRICE * usage["accounted_s"] // 3600
        assert usage["difference_nano_usd"] > 0


@pytest.mark.thorough
def test_a_limit_of_the_account_is_the_reason_and_waits_until_it_is_lifted(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    limits = {
        "AssocGrpCpuLimit (its account uses as many CPUs": ("account", "vision", "GrpTRES=cpu"),
        "QOSMaxJobsPerUserLimit (its owner runs as many jobs": ("qos", "normal", "MaxJobsPerUser"),
    }
    for words, (kind, name, limit) in limits.items():
        slurm.run("sacctmgr", "--immediate", "modify", kind, name, "set", f"{limit}=1")
        with slipway.client("root") as root:
            first = submit(root, script="import time; time.sleep(600)")
            wait_for_state(root, first, "running")
            second = submit(root)
            wait_for(
                lambda: words in workload_of(root, second)["explanation"],  # noqa: B023
                words,
                within_s=60,
            )
            slurm.run("sacctmgr", "--immediate", "modify", kind, name, "set", f"{limit}=-1")
            assert wait_for_state(root, second, "succeeded", "failed")["state"] == "succeeded"
            root.post(f"{JOBS}/{first}/cancel", json={}).raise_for_status()
            wait_for_state(root, first, "stopped")


@pytest.mark.thorough
def test_an_accounting_that_is_away_stops_nothing_and_submits_nothing_twice(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        before = root.get("/pools/twin/usage").json()
        first = submit(root, script="import time; time.sleep(15)")
        wait_for_state(root, first, "running")
        slurm.programs["slurmdbd"].signal(signal.SIGTERM)
        slurm.programs["slurmdbd"].wait()
        second = submit(root)
        assert wait_for_state(root, first, "succeeded", "failed")["state"] == "succeeded"
        words = "Problem talking to the database"
        wait_for(lambda: words in workload_of(root, second)["explanation"], words, within_s=60)
        slurm.start("slurmdbd")
        assert wait_for_state(root, second, "succeeded", "failed")["state"] == "succeeded"
        wait_for(
            # Jobs of earlier tests may be accounted meanwhile.
            lambda: root.get("/pools/twin/usage").json()["accounted"] >= before["accounted"] + 2,
            "accounting",
            within_s=180,
        )


@pytest.mark.thorough
def test_a_job_that_saves_nothing_before_its_time_limit_does_not_run_for_ever(
    slipway: RunningPortal, slurm: SlurmCluster
) -> None:
    with slipway.client("root") as root:
        settings = root.get("/pools/twin").json()["settings"]
        pool = {"name": "short", "engine": "slurm", "settings": settings | {"partition": "short"}}
        root.post("/pools", json=pool).raise_for_status()
        job_id = submit(root, script="import time; time.sleep(600)", pool="short")
        ended = {"succeeded", "failed", "stopped"}
        wait_for(
            lambda: workload_of(root, job_id)["state"] in ended, "end of the job", within_s=600
        )
        workload = workload_of(root, job_id)
        # Its signal ends a script without a handler, which is no failure, until it is the fifth.
        assert (workload["state"], workload["attempt"] >= 5) == ("failed", True), workload
        assert "5 times in a row without a new checkpoint" in workload["explanation"], workload
