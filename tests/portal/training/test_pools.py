"""Pools through the REST API, and jobs that name them. No engine runs here."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from portal.accounts.models import AuditEvent
from portal.compute.adapters.engines.local import LocalEngineKind
from portal.compute.engines import (
    AllocationOrder,
    AllocationPhase,
    AllocationReport,
    EndCause,
    EngineAway,
    Usage,
)
from portal.compute.models import JoinToken, Node, Pool, Tier
from portal.compute.services.node_registration import (
    create_allocation_tokens,
    end_allocation,
    join_node,
)
from portal.compute.services.tiers import change_tier
from portal.core import clock
from portal.core.clock import frozen
from portal.core.errors import Unauthenticated
from portal.spend.meter import meter
from portal.spend.models import Line
from portal.training.models import Checkpoint
from portal.workloads.allocations import tend_allocations
from portal.workloads.costs import unix_ms
from portal.workloads.models import Allocation, AllocationUsage, Lease, Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.services.submission import request_of
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import made_job, submit, take_code, workload_of
from tests.portal.workloads.machines import Machine, facts, finish, run
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres


@pytest.fixture
def root(people: Personas) -> Api:
    """The API as the administrator sees it."""
    return Api.of(people.root)


def make_pool(root: Api, **changes: Any) -> dict[str, Any]:
    """Create a pool of two local places."""
    body = {"name": "twin", "engine": "local", "settings": {"places": 2}} | changes
    answer = root.post("pools", body)
    assert answer.status_code == 201, answer.content
    pool: dict[str, Any] = json_of(answer)
    return pool


def _rest(**changes: str) -> dict[str, Any]:
    settings = {"rest_url": "https://slurm.example.org", "user": "ml-jobs"} | changes
    return {"engine": "slurm", "settings": settings}


def test_an_administrator_adds_changes_and_removes_a_pool(root: Api, bob: Api) -> None:
    made = make_pool(root, most_requests=5)
    assert (made["engine_label"], made["settings"]) == ("Local processes", {"places": 2})
    changed = json_of(root.patch("pools/twin", {"is_open": False, "projects": []}))
    assert (changed["is_open"], changed["projects"]) == (False, [])
    assert json_of(root.patch("pools/twin", {"projects": None}))["projects"] is None
    assert root.delete("pools/twin").status_code == 204
    assert root.get("pools/twin").status_code == 404
    verbs = AuditEvent.objects.filter(target_kind="pool").order_by("pk").values_list("verb")
    assert [verb for (verb,) in verbs] == [
        *("pool.create", "pool.change", "pool.change", "pool.remove")
    ]


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"engine": "nomad"}, "engine", "There is no engine nomad."),
        ({"settings": {"places": 0}}, "settings", "places must be a whole number from 1 to 64."),
        ({"settings": {"places": True}}, "settings", "places must be a whole number"),
        ({"settings": {"partition": "a"}}, "settings", "has no setting partition"),
        ({"engine": "ray", "settings": {}}, "settings", "needs the setting address"),
        ({"engine": "ray", "settings": {"address": "ray://head:10001"}}, "settings", "address"),
        (
            {"engine": "ray", "settings": {"address": "http://a", "x": 1}},
            "settings",
            "no setting x",
        ),
        ({"engine": "slurm", "settings": {"partitions": "a"}}, "settings", "no setting partitions"),
        ({"engine": "slurm", "settings": {"partition": "a b"}}, "settings", "partition"),
        ({"engine": "slurm", "settings": {"user": "root;id"}}, "settings", "user"),
        ({"engine": "slurm", "settings": {"login": "-oProxyCommand=id"}}, "settings", "login"),
        ({"engine": "slurm", "settings": {"folder": "/x/$(id)"}}, "settings", "folder"),
        (_rest(rest_url="http://slurm.example.org"), "settings", "must begin with https"),
        (_rest(user=""), "settings", "rest_url needs user"),
        (_rest(user="root"), "settings", "root is an account of the system"),
        (_rest(login="login-1"), "settings", "are for the commands of Slurm"),
        ({"projects": ["nowhere"]}, "projects", "There is no project nowhere."),
        ({"most_requests": 0}, "most_requests", ""),
        ({"name": "x" * 40}, "name", ""),
        ({"name": "new"}, "name", "the address of the page that creates a pool"),
    ],
)
def test_a_wrong_setting_is_named(
    root: Api, changes: dict[str, Any], field: str, words: str
) -> None:
    body = {"name": "twin", "engine": "local", "settings": {}} | changes
    problem = refusal(root.post("pools", body))
    assert (problem.field or "").startswith(field)
    assert words in problem.detail


def test_a_pool_for_others_does_not_exist(
    root: Api, bob: Api, people: Personas, machine: Machine
) -> None:
    make_pool(root, projects=["other"])
    make_pool(root, name="mine", projects=["vision"])
    assert [pool["name"] for pool in json_of(bob.get("pools"))["items"]] == ["mine"]
    assert json_of(bob.get("pools?project=vision"))["items"][0]["settings"] == {}
    assert refusal(bob.get("pools/twin")).detail == refusal(bob.get("pools/none")).detail
    take_code(bob)
    foreign = refusal(submit(bob, pool="twin"))
    missing = refusal(submit(bob, pool="none"))
    assert foreign.code == missing.code == "no_such_pool"
    assert foreign.detail.replace("twin", "none") == missing.detail
    assert foreign.next_step == missing.next_step


def test_a_closed_pool_takes_no_new_job(root: Api, bob: Api, machine: Machine) -> None:
    make_pool(root)
    root.patch("pools/twin", {"is_open": False})
    take_code(bob)
    assert refusal(submit(bob, pool="twin")).code == "no_such_pool"


def test_a_job_in_a_pool_is_left_alone_by_our_own_nodes(
    root: Api, bob: Api, machine: Machine
) -> None:
    make_pool(root)
    inside, outside = made_job(bob, pool="twin"), made_job(bob)
    run_passes()
    assert workload_of(outside).state == "placed"
    assert workload_of(inside).state == "queued"
    shown = json_of(bob.get(f"projects/vision/jobs/{inside['workload']['id']}"))
    assert "about to be submitted to pool twin" in shown["workload"]["explanation"]
    assert (shown["pool"], outside["pool"]) == ("twin", None)
    assert refusal(root.delete("pools/twin")).code == "pool_in_use"


def test_a_job_behind_the_requests_of_a_pool_says_how_many_there_may_be(
    root: Api, bob: Api, machine: Machine
) -> None:
    pool = Pool.objects.get(pk=make_pool(root, most_requests=1)["id"])
    first, second = made_job(bob, pool="twin"), made_job(bob, pool="twin")
    Allocation.objects.create(pool=pool, workload=workload_of(first), epoch=1)
    shown = json_of(bob.get(f"projects/vision/jobs/{second['workload']['id']}"))
    assert "pool twin takes 1 request at once" in shown["workload"]["explanation"]


def test_a_node_of_an_allocation_takes_its_placement_alone(
    root: Api, bob: Api, machine: Machine
) -> None:
    make_pool(root)
    workload = workload_of(made_job(bob, pool="twin"))
    pool = Pool.objects.get()
    allocation = Allocation.objects.create(
        workload=workload, pool=pool, epoch=1, state="submitted", handle="1"
    )
    name = f"{allocation.name}-0"
    (secret,) = create_allocation_tokens(
        pool=pool, reserved_for=allocation.reserved_for, names=[name], valid_for=timedelta(days=1)
    )
    with pytest.raises(Unauthenticated):  # bound to the name
        join_node(secret=secret, name="other", details=facts())
    node = join_node(secret=secret, name=name, details=facts()).node
    Node.objects.filter(pk=node.pk).update(last_seen_at=clock.now())
    other = workload_of(made_job(bob))
    run_passes()
    assert Lease.objects.get(workload=workload).node_id == node.pk
    assert Lease.objects.get(workload=other).node.name == "lab"


def test_another_back_end_is_refused_in_a_pool(root: Api, bob: Api, machine: Machine) -> None:
    make_pool(root)
    take_code(bob)
    problem = refusal(submit(bob, pool="twin", backend="docker"))
    assert (problem.field, problem.code) == ("backend", "no_such_backend")


def test_a_clone_runs_in_the_same_pool(root: Api, bob: Api, machine: Machine) -> None:
    make_pool(root)
    job = made_job(bob, pool="twin")
    path = f"projects/vision/jobs/{job['workload']['id']}/clone"
    clone = workload_of(json_of(bob.post(path, {})))
    assert clone.pool == Pool.objects.get()


def test_a_repeated_order_has_the_same_tokens_which_end_with_the_allocation(root: Api) -> None:
    make_pool(root)
    order = partial(
        create_allocation_tokens,
        pool=Pool.objects.get(),
        reserved_for="wl_x/1",
        names=["sw-x-0", "sw-x-1"],
        valid_for=timedelta(days=1),
    )
    first = order()
    assert order() == first
    assert JoinToken.objects.count() == 2
    end_allocation(reserved_for="wl_x/1")
    with pytest.raises(Unauthenticated):
        join_node(secret=first[0], name="sw-x-0", details=facts())


@pytest.mark.parametrize("percent", [-1, 1001, 1.5, True, "80"])
def test_a_price_outside_of_its_range_is_refused(root: Api, percent: Any) -> None:
    make_pool(root)
    assert refusal(root.patch("pools/twin", {"price_percent": percent})).field == "price_percent"


def join_as_allocation(workload: Workload, *, epoch: int = 1) -> None:
    """Join the node that an engine would start for a workload in a pool."""
    assert workload.pool is not None
    allocation = Allocation.objects.create(
        workload=workload, pool=workload.pool, epoch=epoch, state="submitted", handle="1"
    )
    name = f"{allocation.name}-0"
    (secret,) = create_allocation_tokens(
        pool=workload.pool,
        reserved_for=allocation.reserved_for,
        names=[name],
        valid_for=timedelta(days=1),
    )
    node = join_node(secret=secret, name=name, details=facts()).node
    Node.objects.filter(pk=node.pk).update(last_seen_at=clock.now())


def test_work_costs_the_percentage_of_its_pool_from_its_start_on(
    root: Api, bob: Api, machine: Machine
) -> None:
    odd = 1_000_000_007
    start = clock.now()
    change_tier(tier=Tier.objects.get(slug="small"), nano_usd_per_hour=odd)
    make_pool(root, price_percent=37)
    assert json_of(root.get("pools/twin"))["price_percent"] == 37
    body = {"script": "train.py", "tier": "small", "snapshot": take_code(bob), "nodes": 2}
    quote = json_of(bob.post("projects/vision/jobs/quote", body | {"pool": "twin"}))
    assert quote["nano_usd_per_hour"] == 2 * (odd * 37 // 100)
    workload = workload_of(made_job(bob, pool="twin"))
    assert request_of(workload).nano_usd_per_hour == odd * 37 // 100
    with frozen(start + timedelta(minutes=1)):
        join_as_allocation(workload)
        run_passes()
    root.patch("pools/twin", {"price_percent": 150})
    with frozen(start + timedelta(minutes=2)):
        later = workload_of(made_job(bob, pool="twin"))
        join_as_allocation(later)
        run_passes()
    lease = Lease.objects.get(workload=workload)
    assert lease.price_percent == 37
    assert Lease.objects.get(workload=later).price_percent == 150
    span_ms = 123_457
    with frozen(start + timedelta(minutes=10)):
        run(workload)
        finish(workload, at_unix_ms=unix_ms(lease.granted_at) + span_ms)
        meter()
    lines = Line.objects.filter(source=lease.pk).values_list("nano_usd", flat=True)
    assert sum(lines) == odd * span_ms * 37 // (100 * 3_600_000)
    shown = json_of(bob.get(f"projects/vision/jobs/{workload.pk}"))
    assert shown["cost_nano_usd"] == sum(lines)


class Accountant:
    """An engine whose accounting the test writes, and that does nothing else."""

    def __init__(self) -> None:
        self.known: dict[str, Usage] = {}
        self.is_away = False
        self.cause = EndCause.FINISHED

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Every allocation has ended."""
        ended = AllocationReport(AllocationPhase.ENDED, cause=self.cause)
        return dict.fromkeys(handles, ended)

    def submit(self, order: AllocationOrder) -> str:
        """Take everything, and never begin."""
        return order.name

    def usage(self, handles: Sequence[str]) -> Mapping[str, Usage]:
        """Return what the test has written."""
        if self.is_away:
            raise EngineAway("slurmdbd is away")
        return {handle: self.known[handle] for handle in handles if handle in self.known}


@pytest.fixture
def accountant(monkeypatch: pytest.MonkeyPatch) -> Accountant:
    """The engine of every pool."""
    engine = Accountant()
    monkeypatch.setattr(LocalEngineKind, "open", lambda *_: engine)
    return engine


def ended_allocation(bob: Api, start: datetime, *, seconds: int) -> None:
    """Run a job in the pool for some seconds and end its allocation."""
    with frozen(start):
        workload = workload_of(made_job(bob, pool="twin"))
        join_as_allocation(workload)
        run_passes()
        run(workload)
    with frozen(start + timedelta(seconds=seconds)):
        finish(workload)
        tend_allocations()


def test_the_bill_of_a_pool_stands_beside_the_late_accounting_of_its_engine(
    root: Api, bob: Api, machine: Machine, accountant: Accountant
) -> None:
    start = clock.now().replace(day=2, hour=1)
    tier = Tier.objects.get(slug="small")
    price = tier.nano_usd_per_hour
    make_pool(root, price_percent=50)
    ended_allocation(bob, start, seconds=360)
    accountant.is_away = True
    with frozen(start + timedelta(seconds=370)):
        tend_allocations()
        shown = json_of(root.get("pools/twin/usage"))
    assert (shown["allocations"], shown["pending"], shown["accounted"]) == (1, 1, 0)
    assert shown["unaccounted_nano_usd"] == price // 20
    accountant.is_away = False
    accountant.known["1"] = Usage(396, 1, 792, "cpu=2,mem=1G,node=1")
    root.patch("pools/twin", {"price_percent": 200})
    with frozen(start + timedelta(hours=1)):
        tend_allocations()
        shown = json_of(root.get("pools/twin/usage"))
    assert (shown["accounted"], shown["pending"], shown["unknown"]) == (1, 0, 0)
    assert (shown["billed_s"], shown["accounted_s"]) == (360, 396)
    assert shown["accounted_cpu_s"] == 792
    assert shown["billed_nano_usd"] == price // 20
    assert shown["difference_nano_usd"] == price // 200
    (latest,) = shown["latest"]
    assert (latest["handle"], latest["resources"]) == ("1", "cpu=2,mem=1G,node=1")


def test_an_allocation_that_no_engine_accounts_is_asked_for_a_day(
    root: Api, bob: Api, machine: Machine, accountant: Accountant
) -> None:
    start = clock.now().replace(day=2, hour=1)
    make_pool(root)
    ended_allocation(bob, start, seconds=60)
    with frozen(start + timedelta(hours=20)):
        tend_allocations()
        assert json_of(root.get("pools/twin/usage"))["pending"] == 1
    with frozen(start + timedelta(hours=26)):
        tend_allocations()
        shown = json_of(root.get("pools/twin/usage?window=month"))
    assert (shown["pending"], shown["unknown"]) == (0, 1)
    assert AllocationUsage.objects.get().due_at is None


def test_the_bill_of_a_pool_is_for_administrators(root: Api, bob: Api) -> None:
    make_pool(root)
    assert bob.get("pools/twin/usage").status_code == 403
    assert root.get("pools/none/usage").status_code == 404
    assert refusal(root.get("pools/twin/usage?window=ever")).field == "window"


def reach_limit(workload: Workload, *, step: int | None = None) -> None:
    """Run a workload in a new allocation until its time limit."""
    workload.refresh_from_db()
    assert workload.pool is not None
    Allocation.objects.open().filter(workload=workload).update(state="ended", ended_at=clock.now())
    join_as_allocation(workload, epoch=workload.epoch + 1)
    run_passes()
    run(workload)
    Lease.objects.filter(workload=workload, ended_at=None).update(step=step)
    finish(workload, "preempted")
    tend_allocations()
    workload.refresh_from_db()


@pytest.mark.parametrize(
    ("steps", "saves", "state"),
    [
        ((None,) * 5, False, "failed"),
        ((9, 9, 8, 9, 9), False, "failed"),
        ((1, 2, 3, 4, 5), False, "queued"),
        ((9, 9, 8, 9, 9), True, "queued"),
    ],
)
def test_a_job_that_reaches_the_time_limit_again_and_again_needs_progress(
    root: Api,
    bob: Api,
    machine: Machine,
    accountant: Accountant,
    steps: tuple[int | None, ...],
    saves: bool,
    state: str,
) -> None:
    accountant.cause = EndCause.TIME_LIMIT
    make_pool(root)
    workload = workload_of(made_job(bob, pool="twin"))
    start = clock.now()
    for number, step in enumerate(steps):
        with frozen(start + timedelta(minutes=number)):
            assert workload.state == "queued"
            if saves and number == 2:
                Checkpoint.objects.create(
                    job_id=workload.pk, step=9, size_bytes=1, attempt=2, created_at=clock.now()
                )
            reach_limit(workload, step=step)
    assert workload.state == state
    if state == "failed":
        shown = json_of(bob.get(f"projects/vision/jobs/{workload.pk}"))["workload"]
        assert "5 times in a row without a new checkpoint" in shown["explanation"]
        assert "Save checkpoints more often" in shown["next_step"]
