"""Several control workers advance a schedule at one moment: each time starts one run."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, connections

from portal.core import clock
from portal.pipelines.services.progress import advance_all
from portal.training.models import Job
from tests.personas import Api
from tests.portal.pipelines.schedules import at, create_nightly, end_job, runs_of, states_of
from tests.portal.workloads.machines import Machine

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]
_WORKERS = 4


def _together(work: Callable[[], object]) -> None:
    """Let several workers do the same at one moment."""
    start = threading.Barrier(_WORKERS)

    def work_and_close(_: int) -> None:
        try:
            start.wait()
            work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(work_and_close, range(_WORKERS)))


def test_workers_at_once_start_each_run_once_and_one_at_a_time(bob: Api, machine: Machine) -> None:
    create_nightly(bob, missed="all", overlap="queue")

    def advance_late() -> None:
        with clock.frozen(at(13, 12)):
            advance_all()

    for count in range(1, 5):  # four nights were missed
        _together(advance_late)
        assert states_of(bob) == ["started"] * count + ["waiting"] * (4 - count)
        _together(advance_late)
        assert states_of(bob).count("started") == count
        end_job(bob, runs_of(bob)[count - 1]["job"])
    assert Job.objects.count() == 5  # with the template
