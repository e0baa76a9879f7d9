"""A running job that writes nothing and uses no processor for 15 minutes says so and alerts."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from portal.accounts.models import OutboxMail, User
from portal.core import clock
from portal.workloads.explanations import Explainer
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.silence import find_silent
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import (
    Machine,
    finish,
    leases_of,
    make_machine,
    make_tier,
    run,
    send_report,
    submit,
    unix_ms,
)

pytestmark = pytest.mark.postgres


@contextmanager
def minutes_later(minutes: float) -> Iterator[None]:
    with clock.frozen(clock.now() + timedelta(minutes=minutes)):
        yield


def measure(machine: Machine, workload: Workload, *cpu_percent: float) -> None:
    """Let the node report the processor use of each task, and look for silent workloads."""
    machine.beat()
    samples = [
        {
            "task_id": lease.task_id,
            "epoch": lease.epoch,
            "at_unix_ms": unix_ms(),
            "cpu_percent": use,
            "memory_bytes": 5_000_000,
        }
        for lease, use in zip(leases_of(workload), cpu_percent, strict=True)
    ]
    body = {"samples": samples, "sent_unix_ms": unix_ms()}
    assert machine.call("POST", "samples", body).status_code == 204
    find_silent()
    workload.refresh_from_db()


def running(people: Personas, *, nodes: int = 1, kind: str = "job") -> tuple[Machine, Workload]:
    machine = make_machine("lab")
    job = submit(people.vision, people.bob, make_tier(), name="train", nodes=nodes, kind=kind)
    run_passes()
    run(job)
    return machine, job


def notifications_of(user: User, path: str = "notifications") -> list[dict[str, object]]:
    items: list[dict[str, object]] = json_of(Api.of(user).get(path))["items"]
    return items


def test_a_silent_job_is_reported_once_and_cleared_when_it_is_active_again(
    people: Personas,
) -> None:
    machine, job = running(people)
    measure(machine, job, 0.3)
    assert job.silent_since is None

    with minutes_later(16):
        measure(machine, job, 0.3)
        measure(machine, job, 0.3)
        explanation = Explainer(people.bob).explain(job)
        assert explanation == (
            "Running on node lab. No output, no step and no processor use for 16 min: it may wait "
            "for input, a lock or another rank. It has no hang limit, so nothing ends it."
        )
        (item,) = notifications_of(people.bob)
        assert (item["kind"], item["id"], item["waits_for_you"]) == ("workload", job.pk, True)
        assert item["title"] == "The job train may hang"
        assert [item["waits_for_you"] for item in notifications_of(people.mia)] == [False]
        assert notifications_of(people.charlie) == []
        mail = OutboxMail.objects.get()
        assert (mail.to, mail.subject) == (people.bob.email, "[Vision] The job train may hang")
        assert f"/p/vision/jobs/{job.pk}" in mail.body
    with minutes_later(17):
        path = f"logs/{leases_of(job)[0].task_id}/1/0?offset=0"
        answer = machine.call("PUT", path, b"epoch 2\n", content_type="application/octet-stream")
        assert answer.status_code == 200
        find_silent()
        job.refresh_from_db()
        assert job.silent_since is None
        assert notifications_of(people.bob) == []
        kinds = list(job.events.order_by("pk").values_list("kind", flat=True))
        assert kinds[-2:] == ["silent", "active"]


@pytest.mark.parametrize(
    "case", ["processor", "one busy rank", "step", "output", "not measured", "notebook"]
)
def test_a_workload_that_is_active_or_not_measured_is_not_reported(
    people: Personas, case: str
) -> None:
    kind = "notebook" if case == "notebook" else "job"
    machine, job = running(people, nodes=2 if case == "one busy rank" else 1, kind=kind)
    idle = [0.0] * len(leases_of(job))
    measure(machine, job, *idle)
    lease = leases_of(job)[0]
    with minutes_later(10):
        if case == "processor":
            measure(machine, job, 97.0)
        elif case == "one busy rank":
            measure(machine, job, 0.0, 97.0)
        elif case == "step":
            send_report(lease, "progress", 3, step=7)
        elif case == "output":
            machine.call(
                "PUT",
                f"logs/{lease.task_id}/1/0?offset=0",
                b"epoch 1\n",
                content_type="application/octet-stream",
            )
    with minutes_later(16):
        if case == "not measured":
            find_silent()
            job.refresh_from_db()
        else:
            measure(machine, job, *idle)
        assert job.silent_since is None
        assert OutboxMail.objects.count() == 0


def test_a_silent_job_that_ends_is_cleared(people: Personas) -> None:
    machine, job = running(people)
    with minutes_later(16):
        measure(machine, job, 0.0)
        assert job.silent_since is not None
        finish(job)
        assert notifications_of(people.bob) == []
        find_silent()
        job.refresh_from_db()
        assert job.silent_since is None
