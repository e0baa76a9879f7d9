"""Pools of a real Slurm cluster with accounting: bills, limits, and a slurmdbd that is away."""

from collections.abc import Iterator

import pytest

from tests.integration.pools.jobs import JOBS, prepare, submit, wait_for_state
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
