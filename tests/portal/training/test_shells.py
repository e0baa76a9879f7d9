"""Shells in jobs: who may open one, what nodes learn of it, and what the audit log keeps."""

from datetime import timedelta

import pytest
from pytest_django import Settings

from portal.accounts.models import AuditEvent, Membership, ServiceAccountOperator
from portal.core import clock
from portal.workloads.models import Lease, ShellSession, Workload
from portal.workloads.services.shells import UNATTENDED, end_unattended
from portal.workloads.tokens import token_of
from tests.personas import Api, Personas, json_of
from tests.portal.training.jobs import made_job, place
from tests.portal.workloads.machines import Machine, finish, run
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres


@pytest.fixture
def job(machine: Machine, bob: Api) -> Workload:
    """A job of Bob's that runs."""
    workload = place(made_job(bob))
    run(workload)
    return workload


def _shells(job: Workload) -> str:
    return f"projects/vision/jobs/{job.pk}/shells"


def test_a_node_learns_of_a_shell_and_may_serve_it(
    machine: Machine, bob: Api, job: Workload
) -> None:
    assert json_of(machine.call("GET", "desired"))["shells"] == []
    assert json_of(machine.call("GET", "relay"))["shells"] == []
    before = json_of(machine.call("GET", "desired"))["version"]
    made = bob.post(_shells(job), {})
    assert made.status_code == 201
    lease = Lease.objects.get(workload=job)
    desired = json_of(machine.call("GET", "desired"))
    assert desired["version"] > before
    assert desired["tasks"][0]["spec"]["shells"] is True
    assert desired["shells"] == [{"task_id": lease.task_id, "epoch": 1}]
    (target,) = json_of(machine.call("GET", "relay"))["shells"]
    assert target == {"workload_id": job.pk, "epoch": 1, "task_id": lease.task_id}
    shell = json_of(made)["id"]
    assert bob.delete(f"{_shells(job)}/{shell}").status_code == 204
    assert bob.delete(f"{_shells(job)}/{shell}").status_code == 204
    assert json_of(machine.call("GET", "relay"))["shells"] == []
    verbs = AuditEvent.objects.filter(verb__contains="shell").order_by("pk")
    opened, closed = verbs
    assert (opened.verb, closed.verb) == ("workload.open_shell", "workload.close_shell")
    assert opened.after == {"shell": shell, "rank": 0, "node": lease.node.name}
    assert (closed.after or {})["reason"] == "closed"


def test_only_people_who_may_run_work_get_in(people: Personas, bob: Api, job: Workload) -> None:
    shell = json_of(bob.post(_shells(job), {}))["id"]
    typed = {"offset": 0, "data": "bHMK"}
    # A shell would give an owner of the project the token and the files of its submitter.
    owner, stranger = Api.of(people.alice), Api.of(people.charlie)
    job_token = Api(token_of(job.pk, job.epoch))
    assert refusal(owner.post(_shells(job), {})).code == "not_the_submitter"
    for api, opens, types in ((owner, 403, 404), (stranger, 404, 404), (job_token, 403, 403)):
        assert api.post(_shells(job), {}).status_code == opens
        assert api.put(f"{_shells(job)}/{shell}/input", typed).status_code == types
        assert api.delete(f"{_shells(job)}/{shell}").status_code == types
    Membership.objects.filter(user=people.bob).update(role="viewer")
    for answer in (
        bob.post(_shells(job), {}),
        bob.put(f"{_shells(job)}/{shell}/input", typed),
        bob.get(f"{_shells(job)}/{shell}/output"),
    ):
        assert answer.status_code == 403


def test_a_shell_that_cannot_be_opened_is_refused_with_a_reason(
    settings: Settings, bob: Api, job: Workload
) -> None:
    bad = refusal(bob.post(_shells(job), {"rank": 1}))
    assert (bad.field, bad.status) == ("rank", 422)
    for _ in range(8):
        assert bob.post(_shells(job), {}).status_code == 201
    assert refusal(bob.post(_shells(job), {})).code == "too_many_shells"
    early = ShellSession.objects.first()
    assert early is not None
    typed = {"offset": 0, "data": "bHMK"}
    refused = refusal(bob.put(f"{_shells(job)}/{early.pk}/input", typed))
    assert refused.code == "shell_not_ready"
    for data in ("?", "", "bH"):
        answer = bob.put(f"{_shells(job)}/{early.pk}/input", typed | {"data": data})
        assert refusal(answer).status in (409, 422)
    settings.SLIPWAY_HAS_RELAY = False
    assert refusal(bob.post(_shells(job), {})).code == "no_relay"
    settings.SLIPWAY_HAS_RELAY = True
    finish(job)
    assert refusal(bob.post(_shells(job), {})).code == "not_running"


def test_the_end_of_forgotten_shells_is_recorded(bob: Api, job: Workload) -> None:
    first, second = (json_of(bob.post(_shells(job), {}))["id"] for _ in range(2))
    end_unattended()
    assert ShellSession.objects.open().count() == 2
    late = clock.now() - UNATTENDED - timedelta(seconds=1)
    ShellSession.objects.filter(pk=first).update(seen_at=late)
    end_unattended()
    assert ShellSession.objects.get(pk=first).reason == "unattended"
    finish(job)
    end_unattended()
    assert ShellSession.objects.get(pk=second).reason == "task_ended"
    closed = AuditEvent.objects.filter(verb="workload.close_shell")
    assert closed.count() == 2


def test_maintainers_open_shells_in_jobs_of_service_accounts(
    people: Personas, machine: Machine, bob: Api
) -> None:
    alice, mia = Api.of(people.alice), Api.of(people.mia)
    accounts = "projects/vision/service-accounts"
    alice.post(accounts, {"name": "robot", "role": "contributor"})
    token = {"name": "ci", "preset": "ci"}
    robot = Api(json_of(mia.post(f"{accounts}/robot/tokens", token))["token"])
    job = place(made_job(robot))
    run(job)
    assert refusal(bob.post(_shells(job), {})).code == "not_the_submitter"
    assert mia.post(_shells(job), {}).status_code == 201
    assert ServiceAccountOperator.objects.filter(person=people.mia).exists()
