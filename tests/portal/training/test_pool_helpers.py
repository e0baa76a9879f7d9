"""Helpers of people in a Slurm pool through the API: their requests, rights, moves and reasons.

A helper is what answers the requests over HTTP here. The real one runs in tests/integration/pools.
"""

from datetime import timedelta
from typing import Any

import pytest

from portal.accounts.models import ApiToken, AuditEvent
from portal.compute.models import HelperRequest, Pool, PoolAccount
from portal.core import clock
from portal.core.clock import frozen
from portal.workloads.allocations import tend_allocations
from portal.workloads.models import Allocation
from slipway.schemas.accounts import Scope
from tests.personas import Api, Personas, json_of, make_token
from tests.portal.training.jobs import made_job, submit, take_code, workload_of
from tests.portal.workloads.machines import Machine, make_machine, make_tier
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres
HELPER, OTHER = "a" * 24, "b" * 24
SETTINGS = {"helper": True, "partition": "main"}


@pytest.fixture
def machine(people: Personas) -> Machine:
    """A machine, without which there is no tier."""
    made = make_machine("lab-1", cpus=2, gib=8)
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    return made


@pytest.fixture
def root(people: Personas, machine: Machine) -> Api:
    """The administrator, who has created the pool `login`."""
    api = Api.of(people.root)
    created = api.post("pools", {"name": "login", "engine": "slurm", "settings": SETTINGS})
    assert created.status_code == 201, created.content
    return api


@pytest.fixture
def linked(root: Api, bob: Api, people: Personas) -> Api:
    """Bob, whose account is linked and whose helper runs."""
    pool = Pool.objects.get(name="login")
    PoolAccount.objects.create(pool=pool, user=people.bob, unix_name="bob7", linked_at=clock.now())
    take(bob)
    return bob


def take(api: Api, helper: str = HELPER) -> dict[str, Any] | None:
    """Take a request, as a helper does."""
    answer = api.post("pools/login/helper/take", {"helper": helper})
    assert answer.status_code == 200, answer.content
    request: dict[str, Any] | None = json_of(answer)["request"]
    return request


def taken(api: Api, operation: str, helper: str = HELPER) -> dict[str, Any]:
    """Take a request that must be there."""
    request = take(api, helper)
    assert request is not None
    assert request["operation"] == operation
    return request


def reply(api: Api, request: dict[str, Any], **fields: Any) -> Any:
    """Answer a request, as a helper does."""
    body = {"helper": HELPER, "status": "done"} | fields
    return api.post(f"pools/login/helper/requests/{request['id']}", body)


def looked(output: str) -> dict[str, Any]:
    """Return the fields of an answer with what squeue printed."""
    return {"squeue": {"code": 0, "output": output}, "sacct": {"code": 0}}


def explanation_of(api: Api, job: dict[str, Any]) -> str:
    """Return why a job is where it is."""
    shown = json_of(api.get(f"projects/vision/jobs/{job['workload']['id']}"))
    text: str = shown["workload"]["explanation"]
    return text


def ordered(api: Api) -> tuple[dict[str, Any], dict[str, Any]]:
    """Submit a job to the pool and take the request that submits it."""
    job = made_job(api, pool="login")
    tend_allocations()
    return job, taken(api, "submit")


def submitted(api: Api) -> dict[str, Any]:
    """Submit a job that the helper has submitted as 4711."""
    job, request = ordered(api)
    assert reply(api, request, handle="4711").status_code == 204
    tend_allocations()
    return job


def test_a_person_links_the_account_that_slurm_reports(
    root: Api, bob: Api, people: Personas
) -> None:
    take_code(bob)
    refused = refusal(submit(bob, pool="login"))
    assert refused.code == "account_not_linked"
    assert "slipway pool helper login" in (refused.next_step or "")
    account = json_of(bob.post("pools/login/account", {}))
    assert account["command"] == "slipway pool helper login"
    assert account["is_helper_running"] is False
    assert take(bob) is None
    tend_allocations()
    request = taken(bob, "submit")
    assert request["name"].startswith("slipway-link-")
    assert request["options"] == {
        "job-name": request["name"],
        "partition": "main",
        "time": "1",
    }
    assert reply(bob, request, handle="12", owner="bob7", owner_number=1007).status_code == 204
    tend_allocations()
    account = json_of(bob.get("pools/login/account"))
    assert (account["name"], account["is_helper_running"]) == ("bob7", True)
    assert AuditEvent.objects.filter(verb="pool.link").exists()


def test_an_account_of_the_system_is_not_linked(root: Api, bob: Api) -> None:
    bob.post("pools/login/account", {})
    tend_allocations()
    request = taken(bob, "submit")
    reply(bob, request, handle="12", owner="root", owner_number=0)
    tend_allocations()
    account = json_of(bob.get("pools/login/account"))
    assert account["name"] is None
    assert "account of the system" in account["problem"]


def test_a_job_is_submitted_reported_on_and_cancelled_by_the_helper(linked: Api) -> None:
    job, request = ordered(linked)
    allocation = Allocation.objects.get()
    assert request["name"] == allocation.name
    assert request["options"]["cpus-per-task"] == "1"
    assert "output" not in request["options"]
    assert "SLIPWAY_JOIN_TOKENS=slj_" in request["script"]
    assert "being submitted to pool login" in explanation_of(linked, job)
    assert reply(linked, request, handle="4711").status_code == 204
    assert bytes(HelperRequest.objects.get(pk=request["id"]).script) == b""
    tend_allocations()
    tend_allocations()
    look = taken(linked, "look")
    assert look["handles"] == ["4711"]
    lines = "4711|N/A|PENDING|Priority|0:00|1:00:00|sw-1\n9|N/A|RUNNING|None|0:01|1:00|x\n"
    reply(linked, look, **looked(lines))
    tend_allocations()
    assert "Slurm says about 4711: Priority" in explanation_of(linked, job)
    linked.post(f"projects/vision/jobs/{job['workload']['id']}/cancel", {})
    tend_allocations()
    cancel = taken(linked, "cancel")
    assert cancel["handles"] == ["4711"]
    assert reply(linked, cancel).status_code == 204
    with frozen(clock.now() + timedelta(seconds=6)):
        tend_allocations()
        look = taken(linked, "look")
        reply(linked, look, **looked("4711|N/A|CANCELLED|None|0:01|1:00:00|sw-1\n"))
        tend_allocations()
    assert not Allocation.objects.open().exists()


def test_work_waits_while_the_helper_is_away_and_says_so(linked: Api, bob: Api) -> None:
    with frozen(clock.now() + timedelta(minutes=5)):
        job = made_job(bob, pool="login")
        tend_allocations()
        text = explanation_of(bob, job)
        assert "the helper of Bob is not running on the login node" in text
        assert "`slipway pool helper login`" in text
        # It takes no place of those whose helpers run.
        assert not Allocation.objects.exists()
        assert take(bob) is None
        tend_allocations()
        assert taken(bob, "submit")["name"] == Allocation.objects.get().name


def test_a_helper_that_never_answers_takes_few_places_of_the_pool(
    linked: Api, people: Personas
) -> None:
    for _ in range(4):
        made_job(linked, pool="login")
    tend_allocations()
    tend_allocations()
    assert Allocation.objects.count() == 2
    first = taken(linked, "submit")
    reply(linked, first, handle="4711")
    tend_allocations()
    assert Allocation.objects.count() == 3


def test_a_job_that_runs_is_left_alone_while_the_helper_is_away(linked: Api) -> None:
    submitted(linked)
    tend_allocations()
    reply(linked, taken(linked, "look"), **looked("4711|N/A|RUNNING|None|0:01|1:00:00|sw-1\n"))
    with frozen(clock.now() + timedelta(hours=3)):
        tend_allocations()
        assert Allocation.objects.open().get().handle.startswith("4711@")


def test_a_job_that_slurm_has_forgotten_ends_its_allocation(linked: Api) -> None:
    job = submitted(linked)
    tend_allocations()
    reply(linked, taken(linked, "look"), **looked(""))
    tend_allocations()
    assert Allocation.objects.order_by("pk").first().cause == "vanished"  # type: ignore[union-attr]
    assert workload_of(job).state == "queued"


def test_a_request_of_a_helper_that_died_goes_to_another_one(linked: Api) -> None:
    _, request = ordered(linked)
    assert take(linked, OTHER) is None
    with frozen(clock.now() + timedelta(seconds=61)):
        again = taken(linked, "submit", OTHER)
        assert again["id"] == request["id"]
        late = refusal(reply(linked, request, handle="4711"))
        assert (late.status, late.code) == (409, "request_not_taken")
        assert reply(linked, again, helper=OTHER, handle="4711").status_code == 204
        twice = refusal(reply(linked, again, helper=OTHER, handle="4712"))
        assert twice.code == "request_not_taken"
        tend_allocations()
        assert Allocation.objects.get().shown_handle == "4711"


def test_a_refusal_fails_the_job_and_an_outage_does_not(linked: Api) -> None:
    job, request = ordered(linked)
    reply(linked, request, status="away", text="Unable to contact slurm controller")
    tend_allocations()
    assert "pool login: Unable to contact slurm controller" in explanation_of(linked, job)
    with frozen(clock.now() + timedelta(seconds=6)):
        tend_allocations()
        request = taken(linked, "submit")
        reply(linked, request, status="refused", text="Socket timed out on send/recv operation")
        tend_allocations()
        assert workload_of(job).state == "queued"
    with frozen(clock.now() + timedelta(seconds=12)):
        tend_allocations()
        reply(linked, taken(linked, "submit"), status="refused", text="Invalid qos specification")
        tend_allocations()
        assert workload_of(job).state == "failed"
        assert "Slurm refused it: Invalid qos specification" in explanation_of(linked, job)


def test_a_cancelled_job_that_no_helper_has_taken_is_never_submitted(linked: Api) -> None:
    job = made_job(linked, pool="login")
    tend_allocations()
    linked.post(f"projects/vision/jobs/{job['workload']['id']}/cancel", {})
    tend_allocations()
    assert take(linked) is None
    assert not Allocation.objects.open().exists()


def test_requests_of_another_person_do_not_exist(linked: Api, root: Api, people: Personas) -> None:
    _, request = ordered(linked)
    for person in (Api.of(people.alice), root):
        assert take(person) is None
        foreign = refusal(reply(person, request, handle="1"))
        missing = refusal(reply(person, {"id": "hreq_none"}, handle="1"))
        assert foreign.status == missing.status == 404
        assert foreign.detail == missing.detail
    assert reply(linked, request, handle="4711").status_code == 204


def test_two_people_may_report_the_same_number(linked: Api, people: Personas) -> None:
    submitted(linked)
    alice = Api.of(people.alice)
    pool = Pool.objects.get()
    PoolAccount.objects.create(
        pool=pool, user=people.alice, unix_name="bob7", linked_at=clock.now()
    )
    take(alice)
    submitted(alice)
    tend_allocations()
    reply(alice, taken(alice, "look"), **looked("4711|N/A|COMPLETED|None|0:01|1:00:00|sw-1\n"))
    tend_allocations()
    allocation = Allocation.objects.open().get(handle=f"4711@{people.bob.pk}")
    assert allocation.workload.submitted_by == people.bob


@pytest.mark.parametrize(
    "fields",
    [
        {"handle": "1;reboot"},
        {"handle": None},
        {"status": "perhaps"},
        {"handle": "1", "owner": "a b"},
        {"handle": "1", "squeue": {"code": 0, "output": "x" * 300_000}},
        {"handle": "1", "more": 1},
    ],
)
def test_a_wrong_answer_is_refused(linked: Api, fields: dict[str, Any]) -> None:
    _, request = ordered(linked)
    assert refusal(reply(linked, request, **fields)).status == 422
    assert HelperRequest.objects.get(pk=request["id"]).state == "taken"


def test_tokens_that_expired_or_are_limited_get_no_request(linked: Api, people: Personas) -> None:
    ordered(linked)
    body = {"helper": HELPER}
    reader = Api(make_token(people.bob, scopes=[Scope.WORKLOADS_READ]))
    assert refusal(reader.post("pools/login/helper/take", body)).code == "missing_scope"
    confined = Api(make_token(people.bob, project=people.vision))
    assert refusal(confined.post("pools/login/helper/take", body)).code == "token_confined"
    ApiToken.objects.filter(user=people.bob).update(expires_at=clock.now() - timedelta(1))
    assert linked.post("pools/login/helper/take", body).status_code == 401


def test_a_helper_works_in_a_closed_pool_and_in_no_other(
    linked: Api, root: Api, people: Personas
) -> None:
    submitted(linked)
    root.patch("pools/login", {"is_open": False, "projects": ["other"]})
    tend_allocations()
    assert taken(linked, "look")["handles"] == ["4711"]
    assert Api.of(people.mia).get("pools/login/helper").status_code == 404
    root.post("pools", {"name": "twin", "engine": "local", "settings": {}})
    assert refusal(linked.get("pools/twin/helper")).code == "no_helper_needed"


@pytest.mark.parametrize("name", ["user", "login", "slurm_conf"])
def test_a_pool_of_helpers_has_no_settings_of_commands(root: Api, name: str) -> None:
    settings = SETTINGS | {name: "/etc/slurm.conf" if name == "slurm_conf" else "ml-jobs"}
    problem = refusal(root.post("pools", {"name": "x", "engine": "slurm", "settings": settings}))
    assert "helper is instead of user" in problem.detail


def test_a_pool_never_changes_between_helpers_and_commands(root: Api, linked: Api) -> None:
    """An account that is a person's word must never be one that Slipway acts as."""
    problem = refusal(root.patch("pools/login", {"settings": {"as_person": True}}))
    assert problem.code == "helper_is_fixed"
    assert root.patch("pools/login", {"settings": SETTINGS | {"qos": "low"}}).status_code == 200
