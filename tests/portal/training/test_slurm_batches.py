"""Orders of many jobs to a real Slurm cluster at once: kills at commits, and queries of a round."""

import signal
from collections.abc import Iterator

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.workloads.allocations import tend_allocations
from portal.workloads.models import Allocation
from tests.commit_kills import kill_at_every_commit
from tests.personas import Api, Personas
from tests.portal.training.jobs import made_job, take_code
from tests.portal.workloads.machines import Machine
from tests.processes import wait_for
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.thorough,
    pytest.mark.skipif(
        bool(missing_programs()), reason=f"Slurm is not installed: {missing_programs()}"
    ),
]


@pytest.fixture
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """A cluster whose jobs wait."""
    folder = tmp_path_factory.mktemp("slurm") / "cluster"
    with running_slurm(folder, nodes=1) as cluster:
        cluster.run("scontrol", "update", "partition=main", "state=down")
        yield cluster


@pytest.fixture
def root(people: Personas, slurm: SlurmCluster) -> Api:
    """The API as the administrator sees it, with a pool in that cluster."""
    api = Api.of(people.root)
    settings = {"partition": "main", "slurm_conf": str(slurm.conf)}
    body = {"name": "twin", "engine": "slurm", "settings": settings, "most_requests": 100}
    assert api.post("pools", body).status_code == 201
    return api


def _elements(slurm: SlurmCluster) -> list[str]:
    lines = slurm.run("squeue", "--noheader", "--array", "--states=all", "--format=%F_%K")
    return sorted(lines.split())


def _has_reasons() -> bool:
    tend_allocations()
    return not Allocation.objects.exclude(detail__startswith="PartitionDown").exists()


@pytest.mark.django_db(transaction=True, databases=["default", "tracking"])
@pytest.mark.skipif(connection.vendor != "postgresql", reason="a fork needs a server")
def test_an_array_is_submitted_once_whenever_the_control_worker_is_killed(
    root: Api, bob: Api, machine: Machine, slurm: SlurmCluster
) -> None:
    take_code(bob)
    for _ in range(4):
        made_job(bob, pool="twin")
    kills = kill_at_every_commit(tend_allocations)
    assert kills >= 8  # the rows, their batch, and the answer to each
    handles = sorted(Allocation.objects.values_list("handle", flat=True))
    assert len(set(handles)) == 4
    assert [each.removesuffix("_N/A") for each in _elements(slurm)] == handles


@pytest.mark.django_db(databases=["default", "tracking"])
def test_a_round_takes_as_many_queries_for_many_allocations_as_for_few(
    root: Api, bob: Api, machine: Machine, slurm: SlurmCluster
) -> None:
    take_code(bob)
    counts = []
    for more in (2, 18):
        for _ in range(more):
            made_job(bob, pool="twin")
        wait_for(_has_reasons, "the reason of Slurm for all", within_s=30)
        with CaptureQueriesContext(connection) as queries:
            tend_allocations()
        counts.append(len(queries))
    assert Allocation.objects.exclude(handle="").count() == 20
    assert counts[0] == counts[1]
    assert len({each.partition("_")[0] for each in _elements(slurm)}) == 2


@pytest.mark.django_db(databases=["default", "tracking"])
def test_a_job_that_is_cancelled_between_its_order_and_the_answer_leaves_nothing(
    root: Api, bob: Api, machine: Machine, slurm: SlurmCluster
) -> None:
    take_code(bob)
    ids = [made_job(bob, pool="twin")["workload"]["id"] for _ in range(3)]
    slurm.programs["slurmctld"].signal(signal.SIGKILL)
    slurm.programs["slurmctld"].wait()
    tend_allocations()  # commits the orders, and gets no answer
    assert Allocation.objects.filter(handle="").count() == 3
    bob.post(f"projects/vision/jobs/{ids[1]}/cancel", {})
    slurm.start("slurmctld")

    def is_settled() -> bool:
        tend_allocations()
        left = {each.workload_id for each in Allocation.objects.open() if each.handle}
        in_slurm = slurm.run("squeue", "--noheader", "--array").splitlines()
        return left == {ids[0], ids[2]} and len(in_slurm) == 2

    wait_for(is_settled, "the others alone", within_s=90)
    assert Allocation.objects.count() == 3
    assert len({handle.partition("_")[0] for handle in _elements(slurm)}) == 1
