"""Overhead of node groups: what machines cost beyond work, to the nano-dollar, by group and day."""

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from portal.compute.models import GroupMachine, MachineDay
from portal.compute.services.machine_meter import meter_machine
from portal.core.clock import frozen
from portal.spend.models import Line
from tests.personas import Api, Personas, json_of
from tests.portal.endpoints.pages import browser_of
from tests.portal.workloads.cloud import Cloud, make_group, registered_cloud, step
from tests.portal.workloads.machines import Machine, finish, make_tier, run, submit

pytestmark = pytest.mark.postgres
# Half an hour before midnight, so that every life crosses it.
START = datetime(2026, 11, 20, 23, 30, tzinfo=UTC)
# A price that no time divides without a rest.
PRICE = 1_000_000_007


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with registered_cloud() as made:
        yield made


def overhead(people: Personas, window: str = "month") -> dict[str, Any]:
    """Return the overhead as an administrator reads it."""
    answer = Api.of(people.root).get(f"/api/v1/spend/overhead?window={window}")
    assert answer.status_code == 200, answer.content
    document: dict[str, Any] = json_of(answer)
    return document


def beat(machines: list[Machine]) -> None:
    """Send heartbeats and run the control worker."""
    for machine in machines:
        machine.beat()
    step()


def test_a_life_costs_its_parts_on_the_days_of_each(people: Personas, cloud: Cloud) -> None:
    def at(minutes: float) -> Any:
        return frozen(START + timedelta(minutes=minutes))

    with at(0):
        make_group(nano_usd_per_hour=PRICE, idle_grace_s=600, join_within_s=3600)
        job = submit(people.vision, people.bob, make_tier(cpus=4))
        step()
    with at(10):  # it joins, and its work starts
        machines = cloud.boot_all()
        step()
        run(job)
        beat(machines)
    with at(50):  # twenty minutes into the next day
        beat(machines)
        finish(job)
        beat(machines)
        live = overhead(people)
    with at(65):
        beat(machines)
        released = GroupMachine.objects.get()
        assert released.state == "draining"
    with at(66):
        step()
        step()
        ended = overhead(people)
    machine = GroupMachine.objects.get()
    assert machine.state == "released"
    (group,) = ended["groups"]
    assert group["group"] == "gpu"
    assert ended["nano_usd"] == machine.cost(timedelta(minutes=66)) == PRICE * 66 // 60
    assert ended["nano_usd"] == ended["work_nano_usd"] + ended["overhead_nano_usd"]
    parts = ("work", "starting", "idle", "grace", "ending")
    assert {part: round(group[f"{part}_nano_usd"] * 60 / PRICE, 6) for part in parts} == {
        "work": 40,
        "starting": 10,
        # It was idle for a quarter of an hour, of which ten minutes are the grace.
        "idle": 5,
        "grace": 10,
        "ending": 1,
    }
    assert [day["day"] for day in group["by_day"]] == ["2026-11-20", "2026-11-21"]
    first, second = group["by_day"]
    assert first["nano_usd"] == machine.cost(timedelta(minutes=30))
    assert first["nano_usd"] + second["nano_usd"] == ended["nano_usd"]
    assert first["work_s"] == 20 * 60
    assert second["overhead_s"] == 16 * 60
    # While it was there, the time so far was in it.
    assert live["nano_usd"] == PRICE * 50 // 60
    # Projects pay for the job alone.
    assert not Line.objects.exclude(project=people.vision.pk).filter(nano_usd__gt=0).exists()
    with at(70):
        assert overhead(people, "today")["groups"][0]["nano_usd"] == second["nano_usd"]
        assert overhead(people, "2026-10")["groups"] == []


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(3))
def test_work_and_overhead_add_up_to_the_cost_of_all_machines(
    people: Personas, cloud: Cloud, seed: int
) -> None:
    """Random lives, metered at random moments more often than needed."""
    source = random.Random(seed)  # noqa: S311  (no secret)
    timestamp = START
    with frozen(timestamp):
        make_group(nano_usd_per_hour=PRICE, idle_grace_s=60)
        tier = make_tier(cpus=4)
    running: list[Any] = []
    machines: list[Machine] = []
    for _ in range(15):
        timestamp += timedelta(milliseconds=source.randint(1, 1_200_000))
        with frozen(timestamp):
            action = source.random()
            if action < 0.4:
                running.append(submit(people.vision, people.bob, tier))
            elif action < 0.6:
                for name in list(GroupMachine.objects.values_list("name", flat=True)):
                    machine = GroupMachine.objects.get(name=name)
                    meter_machine(machine.pk, timestamp)
                    meter_machine(machine.pk, timestamp)
            beat(machines)
            machines += cloud.boot_all()
            beat(machines)
            for job in list(running):
                job.refresh_from_db()
                if job.leases.exists() and source.random() < 0.7:
                    run(job)
                    finish(job)
                    running.remove(job)
            beat(machines)
            document = overhead(people, "2026-11")
    rows = list(GroupMachine.objects.all())
    with frozen(timestamp):
        total = sum(row.cost(row.total_time(timestamp)) for row in rows)
    assert len(rows) > 1
    assert document["nano_usd"] == total
    assert document["work_nano_usd"] + document["overhead_nano_usd"] == total
    assert document["overhead_nano_usd"] > 0
    for group in document["groups"]:
        for field in ("nano_usd", "work_nano_usd", "overhead_nano_usd", "grace_nano_usd"):
            assert group[field] == sum(day[field] for day in group["by_day"])
    assert MachineDay.objects.filter(nano_usd__lt=0).count() == 0


def test_members_do_not_see_what_machines_cost(people: Personas) -> None:
    answer = Api.of(people.bob).get("/api/v1/spend/overhead")
    assert answer.status_code == 403


def test_administrators_see_the_overhead_on_the_page_of_the_installation(
    people: Personas, cloud: Cloud
) -> None:
    with frozen(START):
        make_group(nano_usd_per_hour=PRICE * 100, min_nodes=1)
        step()
    with frozen(START + timedelta(hours=1)):
        page = browser_of(people.root).get("/spend/installation").content.decode()
        assert "Machines of node groups" in page
        assert "no project pays it" in page
        assert "2026-11-20" in page
        own = browser_of(people.bob).get("/spend").content.decode()
        assert "Machines of node groups" not in own
