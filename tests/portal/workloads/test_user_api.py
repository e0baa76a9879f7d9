"""Workloads through the REST API: listed, shown, read, stopped, by those who may."""

from datetime import timedelta
from typing import Any

import pytest

from portal.core import clock
from portal.core.pagination import encode_cursor
from portal.workloads.models import UsageSample, Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.services import logs
from slipway.schemas.base import NEXT_CURSOR
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

LIST = "projects/vision/workloads"


@pytest.fixture
def bob(people: Personas) -> Api:
    """The API as a contributor sees it."""
    return Api.of(people.bob)


@pytest.fixture
def machine(people: Personas) -> Machine:
    """A machine of four CPUs."""
    return make_machine("rack-1")


def _names(answer: Any) -> list[str]:
    return [item["name"] for item in json_of(answer)["items"]]


def test_a_workload_tells_where_it_stands_and_how_it_came_there(
    bob: Api, people: Personas, machine: Machine
) -> None:
    job = submit(people.vision, people.bob, make_tier("small"), nodes=2, name="digits")
    shown = json_of(bob.get(f"{LIST}/{job.pk}"))
    assert (shown["state"], shown["queue_position"], shown["tasks"]) == ("queued", 1, [])
    assert shown["explanation"].startswith("Waiting: ")
    run_passes()
    run(job)
    send_report(leases_of(job)[0], "progress", 3, step=7)
    send_report(leases_of(job)[1], "progress", 3, step=6)
    shown = json_of(bob.get(f"{LIST}/{job.pk}"))
    assert shown["explanation"] == "Running on node rack-1, at step 6."
    assert [(task["index"], task["node"], task["step"]) for task in shown["tasks"]] == [
        (0, "rack-1", 7),
        (1, "rack-1", 6),
    ]
    finish(job, "exit", exit_code=1, log_tail="ValueError: no\n", message="ValueError: no")
    shown = json_of(bob.get(f"{LIST}/{job.pk}"))
    assert (shown["state"], shown["reason"], shown["exit_code"]) == ("failed", "exit", 1)
    assert shown["next_step"]
    assert shown["log_tail"] == "ValueError: no\n"
    kinds = [event["kind"] for event in shown["events"]]
    assert kinds[:4] == ["submitted", "admitted", "queued", "placed"]
    assert kinds[-1] == "failed"
    newest = json_of(bob.get(f"{LIST}/{job.pk}/events?limit=1"))["items"]
    assert newest[0]["kind"] == "failed"


def test_workloads_are_filtered_and_listed_in_pages(
    bob: Api, people: Personas, machine: Machine
) -> None:
    tier = make_tier(cpus=4)
    submit(people.vision, people.bob, tier, name="notes", kind="notebook")
    run_passes()
    for name in ("alpha", "beta", "gamma"):
        submit(people.vision, people.bob, tier, name=name)
    assert _names(bob.get(f"{LIST}?kind=notebook")) == ["notes"]
    assert _names(bob.get(f"{LIST}?state=queued")) == ["gamma", "beta", "alpha"]
    assert _names(bob.get(f"{LIST}?q=ALPH")) == ["alpha"]
    assert _names(bob.get(f"{LIST}?q=%25")) == []
    first = json_of(bob.get(f"{LIST}?limit=3"))
    submit(people.vision, people.bob, tier, name="younger")
    rest = bob.get(f"{LIST}?limit=3&cursor={first['next_cursor']}")
    assert [item["name"] for item in first["items"]] + _names(rest) == [
        *("gamma", "beta", "alpha", "notes")
    ]
    assert bob.get(f"{LIST}?state=sleeping").status_code == 422
    assert _names(Api.of(people.charlie).get("projects/other/workloads")) == []


def test_a_stop_is_asked_for_once_and_told_to_everybody(
    bob: Api, people: Personas, machine: Machine
) -> None:
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    run(job)
    stopping = json_of(bob.post(f"{LIST}/{job.pk}/stop", {"message": "wrong data"}))
    assert (stopping["state"], stopping["explanation"]) == ("stopping", "Stopping: wrong data")
    again = json_of(Api.of(people.alice).post(f"{LIST}/{job.pk}/stop", {"message": "me too"}))
    assert again["explanation"] == "Stopping: wrong data"
    finish(job, "user")
    ended = json_of(bob.post(f"{LIST}/{job.pk}/stop", {}))
    assert (ended["state"], ended["reason"]) == ("stopped", "user")
    assert Api.of(people.vera).post(f"{LIST}/{job.pk}/stop", {}).status_code == 403


def test_a_waiting_workload_stops_at_once_and_its_neighbours_move_up(
    bob: Api, people: Personas, machine: Machine
) -> None:
    tier = make_tier()
    first, second = (submit(people.vision, people.bob, tier) for _ in range(2))
    assert json_of(bob.get(f"{LIST}/{second.pk}"))["queue_position"] == 2
    assert json_of(bob.post(f"{LIST}/{first.pk}/stop", {}))["state"] == "stopped"
    assert json_of(bob.get(f"{LIST}/{second.pk}"))["queue_position"] == 1


def test_a_log_is_read_in_ranges_while_it_grows(
    bob: Api, people: Personas, machine: Machine
) -> None:
    job = submit(people.vision, people.bob, make_tier(), procs=2)
    run_passes()
    run(job)
    (lease,) = leases_of(job)
    address = f"logs/{lease.task_id}/{lease.epoch}/1"
    octets = "application/octet-stream"
    machine.call("PUT", f"{address}?offset=0", b"epoch 1\n", content_type=octets)
    log: Any = bob.get(f"{LIST}/{job.pk}/log?rank=1&limit=5")
    assert log.getvalue() == b"epoch"
    assert log.headers["X-Slipway-Next-Offset"] == "5"
    assert log.headers["X-Slipway-Complete"] == "false"
    rest: Any = bob.get(f"{LIST}/{job.pk}/log?rank=1&offset=5")
    assert rest.getvalue() == b" 1\n"
    assert bob.get(f"{LIST}/{job.pk}/log?rank=2").status_code == 404
    assert bob.get(f"{LIST}/{job.pk}/log?attempt=2").status_code == 404
    assert bob.get(f"{LIST}/{job.pk}/log?rank=-1").status_code == 422


def test_what_it_uses_is_told_by_attempt_oldest_first(
    bob: Api, people: Personas, machine: Machine
) -> None:
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    (lease,) = leases_of(job)
    key = {"task_id": lease.task_id, "epoch": lease.epoch}
    samples = [
        key | {"at_unix_ms": unix_ms() - at, "cpu_percent": percent, "memory_bytes": 5}
        for at, percent in ((0, 30), (2000, 10), (1000, 20))
    ]
    assert machine.call("POST", "samples", {"samples": samples}).status_code == 204
    used = json_of(bob.get(f"{LIST}/{job.pk}/samples"))
    assert [(use["task"], use["cpu_percent"]) for use in used] == [(0, 10), (0, 20), (0, 30)]
    assert json_of(bob.get(f"{LIST}/{job.pk}/samples?attempt=2")) == []


def test_samples_are_listed_in_parts_and_none_is_left_out(
    bob: Api, people: Personas, machine: Machine
) -> None:
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    (lease,) = leases_of(job)
    began = clock.now()
    UsageSample.objects.bulk_create(
        UsageSample(
            lease=lease,
            measured_ms=number,
            at=began + timedelta(seconds=number // 3),
            cpu_percent=number,
            memory_bytes=5,
        )
        for number in range(2_010)
    )
    used: list[float] = []
    cursor = ""
    while len(used) < 3_000:
        part = bob.get(f"{LIST}/{job.pk}/samples?limit=200{cursor}")
        used += [sample["cpu_percent"] for sample in json_of(part)]
        if NEXT_CURSOR not in part.headers:
            break
        cursor = f"&cursor={part.headers[NEXT_CURSOR]}"
    assert used == [*range(2_010)]
    for key in ("nonsense", '["2026", "nonsense"]', '["nonsense", "1"]', '["\\u0000", "1"]'):
        answer = bob.get(f"{LIST}/{job.pk}/samples?cursor={encode_cursor(key)}")
        assert json_of(answer)["code"] == "invalid_cursor"


def test_logs_of_earlier_tasks_that_are_not_listed_are_counted(
    bob: Api, people: Personas, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    assert json_of(bob.get(f"{LIST}/{job.pk}"))["tasks_without_logs"] == 0
    monkeypatch.setattr(logs, "MOST_LEASES", 0)
    assert json_of(bob.get(f"{LIST}/{job.pk}"))["tasks_without_logs"] == 1


@pytest.mark.parametrize("rest", ["", "/events", "/log", "/samples", "/stop"])
def test_the_workload_of_another_project_is_one_there_is_not(
    people: Personas, machine: Machine, rest: str
) -> None:
    theirs = submit(people.other, people.charlie, make_tier())
    alice = Api.of(people.alice)
    verb = "POST" if rest == "/stop" else "GET"
    body: dict[str, str] | None = {} if rest == "/stop" else None
    missing = alice.call(verb, f"{LIST}/wl_01j00000000000000000000000{rest}", body)
    for address in (f"{LIST}/{theirs.pk}{rest}", f"projects/other/workloads/{theirs.pk}{rest}"):
        answer = alice.call(verb, address, body)
        assert answer.status_code == missing.status_code == 404
        assert json_of(answer)["detail"] == json_of(missing)["detail"]
    assert Workload.objects.get().state == "queued"
