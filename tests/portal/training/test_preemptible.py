"""Preemptible jobs through the REST API: price, bill, refusals, and who may learn for whom."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from portal.compute.models import Tier
from portal.compute.services.pools import create_pool
from portal.compute.services.tiers import change_tier
from portal.core.clock import frozen
from portal.spend.meter import meter
from portal.spend.models import Line
from portal.training.models import Checkpoint
from portal.workloads.models import Lease, Preemption, Workload
from portal.workloads.tasks import schedule
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import made_job, submit, take_code, workload_of
from tests.portal.workloads.machines import Machine, finish, make_tier, run
from tests.portal.workloads.machines import submit as submit_workload

pytestmark = pytest.mark.postgres

FULL = 3_600_000_000
JOBS = "projects/vision/jobs"


def running(api: Api, **changes: object) -> Workload:
    """Submit a preemptible job and let it run."""
    job = made_job(api, **{"preemptible": True} | changes)
    schedule()
    workload = workload_of(job)
    run(workload)
    return workload


def test_the_preview_shows_both_prices(bob: Api, machine: Machine) -> None:
    digest = take_code(bob)
    body = {"script": "train.py", "tier": "small", "snapshot": digest, "nodes": 2}
    full = json_of(bob.post(f"{JOBS}/quote", body))
    less = json_of(bob.post(f"{JOBS}/quote", body | {"preemptible": True}))
    prices = [
        (quote["nano_usd_per_hour"], quote["full_nano_usd_per_hour"]) for quote in (full, less)
    ]
    assert prices == [(2 * FULL, 2 * FULL), (FULL, 2 * FULL)]


def test_a_job_says_that_it_is_preemptible_and_so_does_its_clone(
    bob: Api, machine: Machine
) -> None:
    job = made_job(bob, preemptible=True)
    shown = job["workload"]
    assert (shown["preemptible"], shown["preemptions"]) == (True, 0)
    assert (job["nano_usd_per_hour"], shown["full_nano_usd_per_hour"]) == (FULL // 2, FULL)
    path = f"{JOBS}/{shown['id']}/clone"
    assert json_of(bob.post(path, {}))["workload"]["preemptible"] is True
    assert json_of(bob.post(path, {"preemptible": False}))["workload"]["preemptible"] is False


@pytest.mark.parametrize("value", ["yes", 1, [], {}])
def test_what_is_no_truth_value_is_refused(bob: Api, machine: Machine, value: object) -> None:
    take_code(bob)
    answer = submit(bob, preemptible=value)
    assert answer.status_code == 422
    assert json_of(answer)["errors"][0]["field"] == "preemptible"


def test_a_pool_decides_itself_what_is_preempted(
    bob: Api, machine: Machine, people: Personas
) -> None:
    create_pool(name="twin", engine="local", settings={"places": 1})
    take_code(bob)
    body: dict[str, Any] = {"script": "train.py", "tier": "small", "snapshot": take_code(bob)}
    body |= {"pool": "twin", "preemptible": True}
    fault = json_of(bob.post(JOBS, body))
    assert (fault["code"], fault["field"]) == ("preemptible_in_pool", "preemptible")
    quote = json_of(bob.post(f"{JOBS}/quote", body))
    assert quote["can_ever_run"] is False
    assert "decides what is preempted" in quote["explanation"]
    assert not Workload.objects.exists()


def test_it_is_billed_by_the_discount_at_the_start_of_each_lease(
    bob: Api, machine: Machine, people: Personas
) -> None:
    start = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)
    odd = 1_000_000_007
    tier = Tier.objects.get(slug="small")
    with frozen(start - timedelta(hours=1)):
        change_tier(tier=tier, nano_usd_per_hour=odd, preemptible_discount=33)
    with frozen(start):
        job = running(bob)
    with frozen(start + timedelta(minutes=10)):
        change_tier(tier=tier, preemptible_discount=90)
        urgent = submit_workload(people.other, people.charlie, make_tier("all", cpus=4))
        schedule()
    with frozen(start + timedelta(minutes=20, milliseconds=7)):
        job.refresh_from_db()
        assert job.state == "stopping"
        finish(job, "preempted", at_unix_ms=_ms(start + timedelta(minutes=20, milliseconds=7)))
        schedule()
        run(urgent)
    with frozen(start + timedelta(minutes=30)):
        finish(urgent, at_unix_ms=_ms(start + timedelta(minutes=30)))
        schedule()
        run(job)
    with frozen(start + timedelta(minutes=30, seconds=11)):
        finish(job, at_unix_ms=_ms(start + timedelta(minutes=30, seconds=11)))
        first, second = Lease.objects.filter(workload=job).order_by("pk")
        assert (first.discount_percent, second.discount_percent) == (33, 90)
        spans = [
            (lease, (_ms(lease.ended_at) - _ms(lease.granted_at)))
            for lease in (first, second)
            if lease.ended_at is not None
        ]
        expected = [
            odd * span * (100 - lease.discount_percent) // (100 * 3_600_000)
            for lease, span in spans
        ]
        meter()
        for lease, cost in zip((first, second), expected, strict=True):
            lines = Line.objects.filter(source=lease.pk).values_list("nano_usd", flat=True)
            assert sum(lines) == cost
        shown = json_of(bob.get(f"{JOBS}/{job.pk}"))
        assert shown["cost_nano_usd"] == sum(expected)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def test_both_pages_name_only_what_their_reader_may_see(
    bob: Api, machine: Machine, people: Personas
) -> None:
    job = running(bob, name="cheap")
    urgent = submit_workload(people.other, people.charlie, make_tier("all", cpus=4), name="secret")
    schedule()
    path = f"projects/vision/workloads/{job.pk}"
    shown = json_of(bob.get(path))
    assert shown["explanation"] == (
        "Stopping: Moved for another project's job. It saves, stops, and keeps its place in the "
        "queue."
    )
    (move,) = shown["moves"]
    assert (move["moved_for"], move["project"], move["attempt"]) == (None, None, 1)
    assert "secret" not in bob.get(path).content.decode()
    assert urgent.pk not in bob.get(path).content.decode()
    charlie = Api.of(people.charlie)
    waiting = json_of(charlie.get(f"projects/other/workloads/{urgent.pk}"))
    assert waiting["explanation"] == (
        "Waiting: it waits until another project's preemptible job has saved and stopped."
    )
    finish(job, "preempted")
    again = json_of(bob.get(path))
    assert again["preemptions"] == 1
    assert "It was moved for another project's job at" in again["explanation"]
    assert [event["message"] for event in again["events"]].count(
        "Moved for another project's job."
    ) == 2
    assert json_of(bob.get(JOBS))["items"][0]["workload"]["preemptions"] == 1


def test_within_a_project_both_are_named(bob: Api, machine: Machine, people: Personas) -> None:
    job = running(bob, name="cheap")
    urgent = submit_workload(people.vision, people.bob, make_tier("all", cpus=4), name="urgent")
    schedule()
    shown = json_of(bob.get(f"projects/vision/workloads/{job.pk}"))
    assert "Moved for job urgent of project vision." in shown["explanation"]
    assert shown["moves"][0]["moved_for"] == urgent.pk
    assert shown["events"][-1]["message"] == "Moved for job urgent of this project."
    waiting = json_of(bob.get(f"projects/vision/workloads/{urgent.pk}"))
    assert waiting["explanation"] == (
        "Waiting: it waits until job cheap of project vision (preemptible) has saved and stopped."
    )


def test_the_pages_say_who_was_moved_for_whom(bob: Api, machine: Machine, people: Personas) -> None:
    job = running(bob, name="cheap")
    urgent = made_job(bob, name="urgent", nodes=4)
    schedule()
    client = Client()
    client.force_login(people.bob)
    page = client.get(f"/p/vision/jobs/{job.pk}").content.decode()
    assert "Attempt 1 was moved for job urgent of project vision." in page
    assert f"/p/vision/jobs/{urgent['workload']['id']}" in page
    assert "moved 1 time" in page
    assert "$1.80" in page
    assert "$3.60" in page
    page = client.get(f"/p/vision/jobs/{urgent['workload']['id']}").content.decode()
    assert "Job cheap of project vision was moved for it." in page
    assert "preemptible, moved 1 time" in client.get("/p/vision/jobs").content.decode()


def test_the_one_moved_saved_last(bob: Api, machine: Machine, people: Personas) -> None:
    jobs = [running(bob, name=f"cheap {number}") for number in range(4)]
    now = datetime.now(UTC)
    Workload.objects.update(placed_at=now - timedelta(hours=2))
    for number, job in enumerate(jobs):
        minutes = (40, 3, 20, 30)[number]
        Checkpoint.objects.create(
            job_id=job.pk,
            step=1,
            size_bytes=1,
            attempt=1,
            created_at=now - timedelta(minutes=minutes),
        )
    submit_workload(people.other, people.charlie, make_tier("one", cpus=1))
    schedule()
    assert list(Preemption.objects.values_list("workload", flat=True)) == [jobs[1].pk]
