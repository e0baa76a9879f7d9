"""Schedules for which a service account pays: set by maintainers, paused when it ends."""

from typing import Any

import pytest
from django.test import TestCase

from portal.accounts.models import Membership, ServiceAccount, ServiceAccountOperator
from portal.core import clock
from portal.workloads.models import Workload
from slipway.schemas.accounts import Role
from tests.personas import Api, Personas, json_of
from tests.portal.pipelines.schedules import (
    NIGHTLY,
    SCHEDULES,
    advance,
    at,
    body_of,
    create_nightly,
    nightly,
    runs_of,
    states_of,
)
from tests.portal.workloads.machines import Machine
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres

ACCOUNTS = "projects/vision/service-accounts"
ADDRESS = "robot@vision.service-account"


@pytest.fixture
def alice(people: Personas) -> Api:
    """The owner of the project, with a service account called robot."""
    alice = Api.of(people.alice)
    assert alice.post(ACCOUNTS, {"name": "robot", "role": "contributor"}).status_code == 201
    return alice


@pytest.fixture
def mia(people: Personas, alice: Api) -> Api:
    """A maintainer of the project."""
    return Api.of(people.mia)


def _edit(api: Api, **changes: Any) -> Any:
    return json_of(api.patch(NIGHTLY, changes))


def test_what_a_schedule_starts_belongs_to_its_service_account(mia: Api, machine: Machine) -> None:
    create_nightly(mia, run_as="robot")
    assert nightly(mia)["owner"] == ADDRESS
    advance(at(10, 2))
    (run,) = runs_of(mia)
    workload = Workload.objects.get(pk=run["job"])
    assert workload.submitted_by.display_name == "robot (service account)"
    spent = mia.get("projects/vision/jobs").content.decode()
    assert ADDRESS in spent


def test_only_maintainers_let_a_schedule_run_as_an_account(
    bob: Api, mia: Api, people: Personas, machine: Machine
) -> None:
    job = create_nightly(bob)
    answer = bob.post(SCHEDULES, body_of(job, name="other", run_as="robot"))
    assert refusal(answer).code == "role_too_low"
    assert refusal(bob.patch(NIGHTLY, {"run_as": "robot"})).code == "role_too_low"
    assert nightly(bob)["owner"] == "bob@example.org"
    assert _edit(mia, run_as="robot")["owner"] == ADDRESS
    # Whoever lets it run is not somebody else when its requests are decided.
    operators = ServiceAccountOperator.objects.values_list("person", flat=True)
    assert list(operators) == [people.mia.pk]
    missing = mia.patch(NIGHTLY, {"run_as": "nobody"})
    assert (refusal(missing).code, refusal(missing).field) == ("no_such_account", "run_as")


def test_an_account_of_another_project_pays_for_nothing(
    mia: Api, people: Personas, machine: Machine
) -> None:
    charlie = Api.of(people.charlie)
    made = charlie.post("projects/other/service-accounts", {"name": "theirs"})
    assert made.status_code == 201
    create_nightly(mia)
    foreign = refusal(mia.patch(NIGHTLY, {"run_as": "theirs"}))
    missing = refusal(mia.patch(NIGHTLY, {"run_as": "nobody"}))
    assert (foreign.code, foreign.field) == (missing.code, missing.field)


def test_a_contributor_who_changes_the_schedule_pays_and_a_maintainer_does_not(
    bob: Api, mia: Api, machine: Machine
) -> None:
    create_nightly(mia, run_as="robot")
    assert _edit(mia, cron="0 3 * * *")["owner"] == ADDRESS
    assert json_of(mia.post(f"{NIGHTLY}/pause"))["owner"] == ADDRESS
    assert json_of(mia.post(f"{NIGHTLY}/resume"))["owner"] == ADDRESS
    assert _edit(bob, cron="0 4 * * *")["owner"] == "bob@example.org"
    assert _edit(mia, run_as="robot")["owner"] == ADDRESS
    assert _edit(mia, run_as="me")["owner"] == "mia@example.org"


def test_a_run_at_once_is_paid_by_the_person_who_asks(bob: Api, mia: Api, machine: Machine) -> None:
    create_nightly(mia, run_as="robot")
    with clock.frozen(at(9, 21)):
        assert json_of(bob.post(f"{NIGHTLY}/run"))["requested_by"] == "bob@example.org"


def test_the_url_of_a_webhook_ends_when_an_account_pays_from_then_on(
    bob: Api, mia: Api, machine: Machine
) -> None:
    create_nightly(bob, cron=None, trigger={"event": "webhook"})
    url = json_of(bob.post(f"{NIGHTLY}/hook"))["url"].partition("/api/v1/")[2]
    assert Api().post(url).status_code == 202
    assert _edit(mia, run_as="robot")["hook_created_at"] is None
    assert Api().post(url).status_code == 404
    assert refusal(bob.post(f"{NIGHTLY}/hook")).code == "role_too_low"
    url = json_of(mia.post(f"{NIGHTLY}/hook"))["url"].partition("/api/v1/")[2]
    assert Api().post(url).status_code == 202


@pytest.mark.parametrize("end", ["disable", "delete"])
def test_the_schedules_of_an_account_that_ends_pause_with_the_reason(
    alice: Api, mia: Api, machine: Machine, end: str
) -> None:
    create_nightly(mia, run_as="robot")
    with TestCase.captureOnCommitCallbacks(execute=True):
        if end == "delete":
            assert alice.delete(f"{ACCOUNTS}/robot").status_code == 204
        else:
            assert alice.post(f"{ACCOUNTS}/robot/disable").status_code == 200
    schedule = nightly(mia)
    assert (schedule["state"], schedule["owner"]) == ("paused", ADDRESS)
    assert schedule["explanation"] == f"The service account robot was {end}d by Alice."
    with clock.frozen(at(10, 3)):
        assert json_of(mia.post(f"{NIGHTLY}/resume"))["owner"] == "mia@example.org"
    if end == "disable":
        refused = mia.patch(NIGHTLY, {"run_as": "robot"})
        assert (refusal(refused).code, refusal(refused).field) == (
            "account_cannot_submit",
            "run_as",
        )


@pytest.mark.parametrize("loss", ["disabled", "only views"])
def test_a_schedule_whose_pause_was_lost_pauses_when_it_is_due(
    mia: Api, machine: Machine, loss: str
) -> None:
    create_nightly(mia, run_as="robot")
    account = ServiceAccount.objects.get()
    if loss == "disabled":
        account.user.is_active = False
        account.user.save()
    else:
        Membership.objects.filter(user=account.user).update(role=Role.VIEWER)
    advance(at(10, 2))
    schedule = nightly(mia)
    assert states_of(mia) == ["refused"]
    assert schedule["state"] == "paused"
    assert "robot" in schedule["explanation"]
    assert "Enable the service account" in schedule["next_step"]


def test_a_token_of_the_account_creates_a_schedule_that_it_pays_for(
    mia: Api, machine: Machine
) -> None:
    body = {"name": "ci", "preset": "ci"}
    robot = Api(json_of(mia.post(f"{ACCOUNTS}/robot/tokens", body))["token"])
    job = create_nightly(robot)
    assert nightly(mia)["owner"] == ADDRESS
    other = body_of(job, name="other", run_as="robot")
    assert refusal(robot.post(SCHEDULES, other)).code == "person_needed"
