"""Failed tasks that are kept in allocations of pools: their time limits, and what ends them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import pytest

from portal.compute.adapters.engines.local import LocalEngineKind
from portal.compute.engines import AllocationOrder, AllocationPhase, AllocationReport, EndCause
from portal.core import clock
from portal.workloads.allocations import tend_allocations
from portal.workloads.models import Allocation, Workload, WorkloadEvent
from portal.workloads.scheduling import run_passes
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import made_job, workload_of
from tests.portal.training.test_kept_tasks import MESSAGE, end_kept, fail
from tests.portal.training.test_pools import join_as_allocation, make_pool
from tests.portal.workloads.machines import Machine, run

pytestmark = pytest.mark.postgres


class Cluster:
    """An engine with one allocation, whose state the test writes."""

    def __init__(self) -> None:
        self.report = AllocationReport(AllocationPhase.GRANTED)
        self.orders: list[AllocationOrder] = []
        self.stopped: list[str] = []

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report the same of every allocation."""
        return dict.fromkeys(handles, self.report)

    def submit(self, order: AllocationOrder) -> str:
        """Take everything, and never begin."""
        self.orders.append(order)
        return order.name

    def stop(self, handle: str, *, account: str = "") -> None:
        """Note it."""
        self.stopped.append(handle)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """The engine of every pool."""
    engine = Cluster()
    monkeypatch.setattr(LocalEngineKind, "open", lambda *_: engine)
    return engine


@pytest.fixture
def job(people: Personas, bob: Api, machine: Machine, cluster: Cluster) -> Workload:
    """A job of Bob's that runs in an allocation."""
    make_pool(Api.of(people.root))
    workload = workload_of(made_job(bob, pool="twin", keep_failed_minutes=15))
    join_as_allocation(workload)
    run_passes()
    run(workload)
    workload.refresh_from_db()
    return workload


def _granted(limit_at: datetime | None = None) -> AllocationReport:
    return AllocationReport(AllocationPhase.GRANTED, ends_at=limit_at)


def _explanation(bob: Api, job: Workload) -> str:
    shown = json_of(bob.get(f"projects/vision/jobs/{job.pk}"))
    text: str = shown["workload"]["explanation"]
    return text


def test_a_kept_task_holds_its_allocation_until_its_end(
    bob: Api, job: Workload, cluster: Cluster
) -> None:
    fail(job)
    assert job.is_kept
    tend_allocations()
    assert cluster.stopped == []
    assert "reaches its time limit" not in _explanation(bob, job)
    assert json_of(bob.post(f"projects/vision/jobs/{job.pk}/shells", {}))["node"].startswith("sw-")
    with clock.frozen(clock.now() + timedelta(minutes=15)):
        end_kept(job, "Its time is over.")
        assert (job.state, job.reason, job.epoch) == ("failed", "exit", 1)
        cluster.report = AllocationReport(AllocationPhase.ENDED, cause=EndCause.FINISHED)
        tend_allocations()
        run_passes()
        tend_allocations()
    job.refresh_from_db()
    assert (job.state, job.epoch, cluster.orders) == ("failed", 1, [])
    assert Allocation.objects.get().state == "ended"
    assert json_of(bob.get(f"projects/vision/jobs/{job.pk}"))["cost_nano_usd"] >= 900_000_000


@pytest.mark.parametrize("is_known_before", [True, False])
def test_the_time_limit_of_its_allocation_is_said(
    bob: Api, job: Workload, cluster: Cluster, is_known_before: bool
) -> None:
    limit_at = clock.now() + timedelta(minutes=5)
    cluster.report = _granted(limit_at)
    for step in (tend_allocations, lambda: fail(job))[:: 1 if is_known_before else -1]:
        step()
    job.refresh_from_db()
    assert job.kept_until == limit_at
    expected = f"Kept until {limit_at:%H:%M} UTC, when its allocation in pool twin reaches its time"
    assert expected in _explanation(bob, job)
    if is_known_before:
        assert expected in WorkloadEvent.objects.get(workload=job, kind="kept").message
    # An administrator of the engine shortens it.
    cluster.report = _granted(limit_at - timedelta(minutes=2))
    tend_allocations()
    job.refresh_from_db()
    assert job.kept_until == limit_at - timedelta(minutes=2)
    with clock.frozen(job.kept_until - timedelta(seconds=25)):
        end_kept(job, "The engine ended the allocation.")
    assert (job.state, job.reason, job.reason_text) == ("failed", "exit", MESSAGE)
    event = WorkloadEvent.objects.get(workload=job, kind="task_ended").message
    assert event.startswith("No longer kept: The engine ended the allocation. The time limit of")


@pytest.mark.parametrize("cause", list(EndCause))
def test_an_engine_that_ends_it_leaves_it_failed_and_starts_nothing(
    bob: Api, job: Workload, cluster: Cluster, cause: EndCause
) -> None:
    fail(job)
    cluster.report = AllocationReport(AllocationPhase.ENDED, cause=cause)
    # Its agent was killed, and is silent.
    with clock.frozen(clock.now() + timedelta(minutes=2)):
        tend_allocations()
        run_passes()
        tend_allocations()
    job.refresh_from_db()
    assert (job.state, job.reason, job.reason_text) == ("failed", "exit", MESSAGE)
    assert (job.epoch, cluster.orders) == (1, [])
    event = WorkloadEvent.objects.get(workload=job, kind="task_ended").message
    assert event.startswith("No longer kept: ")
    assert "min cost $" in event


def test_an_agent_that_does_not_leave_after_it_is_stopped_by_its_engine(
    bob: Api, job: Workload, cluster: Cluster
) -> None:
    fail(job)
    assert bob.post(f"projects/vision/jobs/{job.pk}/cancel").status_code == 200
    end_kept(job, "Stopped on request.")
    with clock.frozen(clock.now() + timedelta(minutes=1)):
        tend_allocations()
    assert cluster.stopped == ["1"]
