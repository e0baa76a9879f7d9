"""Gangs through the agent API: each task reports its address, and all hear where the others are."""

from typing import Any

import pytest

from portal.workloads.explanations import Explainer
from portal.workloads.models import Lease, Workload
from portal.workloads.scheduling import run_passes
from tests.personas import Personas, json_of
from tests.portal.workloads.machines import (
    Machine,
    finish,
    leases_of,
    make_machine,
    make_tier,
    report_of,
    run,
    send_report,
    state_of,
    submit,
)


def test_the_gang_hears_where_it_meets(people: Personas) -> None:
    a, b = make_machine("a", cpus=2), make_machine("b", cpus=2)
    job = submit(people.vision, people.bob, make_tier(cpus=2), nodes=2)
    run_passes()
    first, second = leases_of(job)
    leader, follower = (a, b) if first.node_id == a.node.pk else (b, a)
    seen = json_of(follower.call("GET", "desired"))["version"]
    place = {"address": "10.0.0.1", "port": 29500, "agent_store": True}
    report = report_of(first, "rendezvous", 1, rendezvous=place)
    assert leader.call("POST", "reports", {"reports": [report]}).status_code == 200
    desired = json_of(follower.call("GET", f"desired?seen={seen}"))
    assert desired["version"] > seen
    assert desired["tasks"][0]["rendezvous"] == place
    # Only task 0 says where, and only once an epoch.
    stray = report_of(second, "rendezvous", 1, rendezvous={"address": "6.6.6.6", "port": 1})
    follower.call("POST", "reports", {"reports": [stray]})
    assert json_of(leader.call("GET", "desired"))["tasks"][0]["rendezvous"] == place


def explanation(people: Personas, job: Workload) -> str:
    """Return the sentence that bob reads about the state of the job."""
    job.refresh_from_db()
    return Explainer(people.bob).explain(job)


def _gang(people: Personas, **changes: Any) -> tuple[Workload, list[tuple[Lease, Machine]]]:
    """Place a job of two tasks of two ranks, each on a machine of its own."""
    machines = {
        machine.node.pk: machine for machine in (make_machine(cpus=2), make_machine(cpus=2))
    }
    job = submit(people.vision, people.bob, make_tier(cpus=2), nodes=2, procs=2, **changes)
    run_passes()
    return job, [(lease, machines[lease.node_id]) for lease in leases_of(job)]


def _join_gang(lease: Lease, machine: Machine, **changes: Any) -> Any:
    member = {"address": f"10.0.0.{lease.index + 1}", "ports": [4000, 4001]} | changes
    fields: dict[str, Any] = {"member": member}
    if lease.index == 0:
        fields["rendezvous"] = {"address": member["address"], "port": 29500}
    report = report_of(lease, "rendezvous", 1, **fields)
    return machine.call("POST", "reports", {"reports": [report]})


def _members(machine: Machine) -> Any:
    return json_of(machine.call("GET", "desired"))["tasks"][0]["members"]


@pytest.mark.parametrize("first", [0, 1])
def test_a_gang_gets_the_addresses_of_all_its_tasks_at_once(people: Personas, first: int) -> None:
    job, tasks = _gang(people)
    assert _join_gang(*tasks[first]).status_code == 200
    assert [_members(machine) for _, machine in tasks] == [None, None]
    seen = [json_of(machine.call("GET", "desired"))["version"] for _, machine in tasks]
    _join_gang(*tasks[1 - first])
    members = [{"address": f"10.0.0.{index}", "ports": [4000, 4001]} for index in (1, 2)]
    assert [_members(machine) for _, machine in tasks] == [members, members]
    for (_, machine), before in zip(tasks, seen, strict=True):
        assert json_of(machine.call("GET", "desired"))["version"] > before
    run(job)
    assert [_members(machine) for _, machine in tasks] == [None, None], "ranks that run need none"


def test_a_later_address_of_a_task_changes_nothing(people: Personas) -> None:
    _, tasks = _gang(people)
    for lease, machine in tasks:
        _join_gang(lease, machine)
    lease, machine = tasks[1]
    report = report_of(lease, "rendezvous", 2, member={"address": "10.6.6.6", "ports": [1, 2]})
    assert machine.call("POST", "reports", {"reports": [report]}).status_code == 200
    assert _members(machine)[1]["address"] == "10.0.0.2"


def test_a_machine_gives_no_address_to_tasks_of_others(people: Personas) -> None:
    _, tasks = _gang(people)
    (first, leader), (second, _) = tasks
    answer = _join_gang(second, leader)
    assert json_of(answer)["stale"] == [{"task_id": second.task_id, "epoch": 1}]
    stray = report_of(first, "rendezvous", 1, member={"address": "10.0.0.9", "ports": [1, 2]})
    leader.call("POST", "reports", {"reports": [stray | {"epoch": 2}]})
    assert not any(lease.address for lease in leases_of(first.workload))


ABSURD: list[dict[str, Any]] = [
    {"address": "0.0.0.0"},  # noqa: S104
    {"address": "::"},
    {"address": "224.0.0.1"},
    {"address": "255.255.255.255"},
    {"address": "10.0.0.999"},
    {"address": "fe80::1%eth0"},
    {"address": "host slots=9"},
    {"address": 'a","b'},
    {"address": "a" * 254},
    {"address": ""},
    {"ports": []},
    {"ports": [0, 1]},
    {"ports": [1, 65_536]},
    {"ports": [4000, 4000]},
    {"ports": list(range(1, 258))},
    {"ports": ["4000", 4001]},
    {"ports": None},
]


def test_an_absurd_address_of_a_task_is_refused(people: Personas) -> None:
    _, tasks = _gang(people)
    for member in ABSURD:
        answer = _join_gang(*tasks[1], **member)
        assert answer.status_code == 422, member
        assert json_of(answer)["next_step"]
    assert not leases_of(tasks[1][0].workload)[1].address


@pytest.mark.parametrize("ports", [[4000], [4000, 4001, 4002]])
def test_a_task_has_one_port_for_each_rank(people: Personas, ports: list[int]) -> None:
    _, tasks = _gang(people)
    for lease, machine in tasks:
        _join_gang(lease, machine, ports=ports)
    assert _members(tasks[0][1]) is None


def test_a_gang_does_not_wait_for_addresses_of_older_agents(people: Personas) -> None:
    _, tasks = _gang(people)
    (first, leader), (second, follower) = tasks
    _join_gang(first, leader)
    seen = json_of(leader.call("GET", "desired"))["version"]
    running = report_of(second, "running", 1)
    follower.call("POST", "reports", {"reports": [running]})
    desired = json_of(leader.call("GET", "desired"))
    assert desired["tasks"][0]["members"] == []
    assert desired["version"] > seen


def test_the_next_attempt_of_a_gang_waits_for_new_addresses(people: Personas) -> None:
    job, tasks = _gang(people)
    for lease, machine in tasks:
        _join_gang(lease, machine)
    run(job)
    finish(job, "preempted")
    run_passes()
    assert [lease.epoch for lease in leases_of(job)] == [2, 2]
    assert [_members(machine) for _, machine in tasks] == [None, None]


def _connections(lease: Lease, sequence: int, *, connected: bool) -> None:
    send_report(lease, "progress", sequence, ranks_connected=connected)


def _events(job: Workload) -> list[str]:
    kinds = job.events.order_by("pk").values_list("kind", flat=True)
    return [kind for kind in kinds if kind.startswith("ranks")]


def test_a_job_whose_ranks_stay_apart_says_so_until_they_connect(people: Personas) -> None:
    job, tasks = _gang(people)
    run(job)
    for lease, _ in tasks:
        assert "None of the 4 ranks" not in explanation(people, job)
        for _ in range(2):
            _connections(lease, 3, connected=False)
    assert "None of the 4 ranks has connected to another" in explanation(people, job)
    assert "needs the framework ray or dask (--framework)" in explanation(people, job)
    assert _events(job) == ["ranks_apart"]
    _connections(tasks[0][0], 4, connected=True)
    _connections(tasks[0][0], 5, connected=False)
    assert "ranks" not in explanation(people, job)
    assert _events(job) == ["ranks_apart", "ranks_connected"]


def test_a_job_whose_ranks_never_met_ends_with_a_warning(people: Personas) -> None:
    job, tasks = _gang(people)
    run(job)
    for lease, _ in tasks:
        _connections(lease, 3, connected=False)
        send_report(lease, "ended", 4, reason="completed")
    assert state_of(job) == "succeeded"
    assert "None of the 4 ranks has connected to another" in explanation(people, job)


def test_ranks_are_not_apart_if_one_task_could_not_be_observed(people: Personas) -> None:
    job, tasks = _gang(people)
    run(job)
    _connections(tasks[0][0], 3, connected=False)
    finish(job)
    assert "ranks" not in explanation(people, job)
    assert not _events(job)


def test_the_next_attempt_starts_without_the_warning(people: Personas) -> None:
    job, tasks = _gang(people)
    run(job)
    for lease, _ in tasks:
        _connections(lease, 3, connected=False)
    finish(job, "preempted")
    run_passes()
    run(job)
    assert "ranks" not in explanation(people, job)
    for lease, _ in tasks:  # of the first attempt
        _connections(lease, 5, connected=True)
    assert not job.ranks_apart


def test_a_job_of_one_rank_is_never_apart(people: Personas) -> None:
    make_machine()
    job = submit(people.vision, people.bob, make_tier())
    run_passes()
    run(job)
    _connections(leases_of(job)[0], 3, connected=False)
    assert not _events(job)
