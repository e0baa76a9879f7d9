"""Several control workers advance a run at one moment: each step starts one job."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from django.db import connection, connections
from pytest_django import Settings

from portal.pipelines.services.pipeline_progress import advance_all
from portal.sweeps.models import Sweep
from portal.training.models import Job
from tests.personas import Api
from tests.portal.pipelines.pipeline_runs import (
    RUNS,
    body_of,
    end_job,
    shown,
    states_of,
    step,
    steps_of,
)
from tests.portal.pipelines.sweep_steps import sweep_of, sweep_step
from tests.portal.workloads.machines import Machine

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]
_WORKERS = 4


@pytest.fixture(autouse=True)
def _artifacts(settings: Settings, tmp_path: Path) -> None:
    settings.SLIPWAY_ARTIFACTS_URL = f"file://{tmp_path / 'artifacts'}"


def _together(*work: Callable[[], object]) -> None:
    """Let several workers do something at one moment."""
    start = threading.Barrier(len(work))

    def work_and_close(task: Callable[[], object]) -> None:
        try:
            start.wait()
            task()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(work)) as pool:
        list(pool.map(work_and_close, work))


def test_workers_at_once_start_each_step_once(bob: Api, machine: Machine) -> None:
    steps = [
        step("split", outputs={"parts": {"type": "array"}}),
        step("part", foreach="${steps.split.outputs.parts}", inputs={"x": "${item}"}),
        step("last", after=["part"]),
    ]
    run_id: str = bob.post(RUNS, body_of(bob, steps)).json()["id"]  # type: ignore[attr-defined]
    workers = [advance_all] * _WORKERS
    _together(*workers)
    assert Job.objects.count() == 1
    end_job(steps_of(bob, run_id)["split"]["job"], machine, {"parts": ["a", "b", "c"]})
    _together(*workers)
    assert Job.objects.count() == 4
    for row in [row for row in shown(bob, run_id)["steps"] if row["item"] is not None]:
        end_job(row["job"], machine)
    _together(*workers)
    assert Job.objects.count() == 5
    assert states_of(bob, run_id)["last"] == "running"


def test_workers_at_once_start_one_sweep_for_a_step(bob: Api, machine: Machine) -> None:
    run_id: str = bob.post(RUNS, body_of(bob, [sweep_step()])).json()["id"]  # type: ignore[attr-defined]
    _together(*[advance_all] * _WORKERS)
    assert Sweep.objects.count() == 1
    assert sweep_of(bob, run_id) == Sweep.objects.get().pk
    assert states_of(bob, run_id) == {"tune": "running"}


def test_nothing_starts_in_a_run_that_is_cancelled_meanwhile(bob: Api, machine: Machine) -> None:
    body = body_of(bob, [step("a"), step("b"), step("c")])
    run_id: str = bob.post(RUNS, body).json()["id"]  # type: ignore[attr-defined]
    api = Api(bob.token)
    _together(advance_all, advance_all, lambda: api.post(f"{RUNS}/{run_id}/cancel"))
    advance_all()
    assert shown(bob, run_id)["state"] == "cancelled"
    states = {job.workload.state for job in Job.objects.select_related("workload")}
    assert states <= {"stopped"}
    assert set(states_of(bob, run_id).values()) == {"cancelled"}
