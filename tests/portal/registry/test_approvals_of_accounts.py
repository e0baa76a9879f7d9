"""Approvals and service accounts: people decide, and not those who have used the account."""

from typing import Any

import pytest

from portal.accounts.models import OutboxMail
from slipway.schemas.accounts import SERVICE_SCOPES
from tests.personas import Api, Personas, json_of
from tests.portal.registry.store import Store
from tests.portal.registry.test_promoting import DIGITS, put_gates
from tests.portal.registry.test_registering import MODELS, register

pytestmark = pytest.mark.postgres

ACCOUNTS = "projects/vision/service-accounts"


def _robot(owner: Api, maker: Api) -> Api:
    """Create a service account that maintains the project, with a token that `maker` has made."""
    created = owner.post(ACCOUNTS, {"name": "robot", "role": "maintainer"})
    assert created.status_code == 201
    body = {"name": "ci", "scopes": sorted(SERVICE_SCOPES)}
    return Api(json_of(maker.post(f"{ACCOUNTS}/robot/tokens", body))["token"])


def _decide(api: Api, request: dict[str, Any], verdict: str = "approve") -> tuple[int, Any]:
    path = f"{MODELS}/digits/requests/{request['id']}/decision"
    answer = api.post(path, {"verdict": verdict})
    return answer.status_code, json_of(answer)


def test_an_account_decides_nothing_and_who_has_used_it_does_not_decide_for_it(
    bob: Api, mia: Api, people: Personas, store: Store
) -> None:
    alice = Api.of(people.alice)
    robot = _robot(alice, mia)
    register(robot, store.run())
    put_gates(mia, {"kind": "approval"})
    OutboxMail.objects.all().delete()
    request = json_of(robot.post(f"{DIGITS}/1/requests", {"stage": "Production"}))
    assert [mail.to for mail in OutboxMail.objects.all()] == ["alice@example.org"]
    titles = {
        who: [note["kind"] for note in json_of(api.get("notifications"))["items"]]
        for who, api in (("mia", mia), ("alice", alice))
    }
    assert titles == {"mia": [], "alice": ["approval"]}
    # Mia has made its token, so it is partly her own work.
    status, problem = _decide(mia, request)
    assert (status, problem["code"]) == (403, "own_work")
    status, approved = _decide(alice, request)
    assert (status, approved["state"]) == (200, "approved")


def test_a_service_account_is_not_somebody_else(
    bob: Api, mia: Api, people: Personas, store: Store
) -> None:
    robot = _robot(Api.of(people.alice), mia)
    register(bob, store.run())
    put_gates(mia, {"kind": "approval"})
    request = json_of(bob.post(f"{DIGITS}/1/requests", {"stage": "Production"}))
    for verdict in ("approve", "reject"):
        status, problem = _decide(robot, request, verdict)
        assert (status, problem["code"]) == (403, "person_needed")
    rules = robot.put("projects/vision/registry-rules", {"stages": [], "gates": {}})
    assert rules.status_code in (403, 404, 422)
    assert _decide(mia, request)[1]["state"] == "approved"
