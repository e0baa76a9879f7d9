"""An approval request reaches those who can decide it, and the decision the requester."""

import pytest
from django.test import Client

from portal.accounts.models import OutboxMail, User
from portal.experiments.models import ModelVersion
from tests.personas import Api, Personas, json_of
from tests.portal.registry.store import Store
from tests.portal.registry.test_promoting import DIGITS, promote, put_gates
from tests.portal.registry.test_registering import MODELS, register

pytestmark = pytest.mark.postgres


def _seen(user: User, path: str = "notifications") -> list[tuple[str, str]]:
    items = json_of(Api.of(user).get(path))["items"]
    return [(item["kind"], item["id"]) for item in items]


def _mailed(user: User) -> list[str]:
    return list(OutboxMail.objects.filter(to=user.email).values_list("subject", flat=True))


def _page(user: User, path: str) -> str:
    browser = Client()
    browser.force_login(user)
    return browser.get(path).content.decode()


@pytest.mark.thorough
def test_a_request_reaches_those_who_can_decide_and_the_decision_reaches_the_requester(
    bob: Api, mia: Api, people: Personas, store: Store
) -> None:
    register(bob, store.run())
    put_gates(mia, {"kind": "approval"})
    note = "please <b>look</b>"
    request = json_of(bob.post(f"{DIGITS}/1/requests", {"stage": "Production", "note": note}))
    for decider in (people.mia, people.alice):
        assert _seen(decider) == [("approval", request["id"])]
        assert _seen(decider, "projects/vision/notifications") == [("approval", request["id"])]
        assert _mailed(decider) == ["[Vision] Bob requests approval of digits version 1"]
    path = json_of(Api.of(people.mia).get("notifications"))["items"][0]["path"]
    assert path == "/p/vision/models/digits/versions/1/promote?stage=Production"
    assert 'value="approve">Approve</button>' in _page(people.mia, path)
    for other in (people.bob, people.vera, people.charlie, people.root):
        assert _seen(other) == []
        assert _mailed(other) == []
    mail = OutboxMail.objects.get(to=people.mia.email).body
    assert "/p/vision/models/digits/versions/1" in mail
    assert note in mail
    for path in ("/notifications/card", "/notifications", "/p/vision/notifications/card"):
        page = _page(people.mia, path)
        assert "Approve digits version 1 for stage Production?" in page
        assert "please &lt;b&gt;look&lt;/b&gt;" in page
        assert "Approve digits" not in _page(people.bob, path)
    assert "1 open" in _page(people.mia, "/notifications/count")
    assert not _page(people.bob, "/notifications/count").strip()

    decision = f"{MODELS}/digits/requests/{request['id']}/decision"
    mia.post(decision, {"verdict": "approve", "note": "fine"})
    assert _seen(people.mia) == []
    assert _seen(people.bob) == [("approved", request["id"])]
    assert _mailed(people.bob) == ["[Vision] Mia approved digits version 1"]
    assert promote(bob)[0] == 201
    assert _seen(people.bob) == []


def test_requests_for_deleted_versions_and_of_former_maintainers_disappear(
    bob: Api, mia: Api, people: Personas, store: Store
) -> None:
    register(bob, store.run())
    register(bob, store.run())
    for number in (1, 2):
        bob.post(f"{DIGITS}/{number}/requests", {"stage": "Production"})
    assert len(_seen(people.mia)) == 2
    # MLflow's client marks a deleted version like this.
    ModelVersion.objects.filter(name="digits", version=1).update(current_stage="Deleted_Internal")
    assert len(_seen(people.mia)) == 1
    assert (
        Api.of(people.alice).delete(f"projects/vision/members/{people.mia.pk}").status_code == 204
    )
    assert _seen(people.mia) == []


def test_a_token_that_may_not_read_models_says_which_scope_is_missing(people: Personas) -> None:
    answer = json_of(Api.of(people.mia, scopes=["projects:read"]).get("notifications"))
    assert answer["missing_scopes"] == ["experiments:read", "workloads:read"]
    foreign = Api.of(people.charlie).get("projects/vision/notifications")
    assert foreign.status_code == 404
