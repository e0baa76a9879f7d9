"""Invitations: bound to an address, used once, ended by time, by withdrawal, by a newer one."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.core.cache import cache

from portal.accounts.models import Invitation, Membership, OutboxMail, User
from portal.core import clock
from tests.personas import Api, Personas, json_of, make_user
from tests.portal.accounts.browser import Browser
from tests.portals import RunningPortal
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres

WISH = {"email": "new@example.org", "role": "contributor"}


@pytest.fixture(autouse=True)
def _fresh_counters(request: pytest.FixtureRequest) -> None:
    if "people" in request.fixturenames:
        request.getfixturevalue("people")
        cache.clear()


def _invite(api: Api, **changes: Any) -> tuple[str, str]:
    """Return the id and the secret of a new invitation into Vision."""
    made = json_of(api.post("projects/vision/invitations", WISH | changes))
    return made["id"], made["link"].rpartition("/")[2]


def _state(api: Api, invitation_id: str) -> str:
    listed = json_of(api.get("projects/vision/invitations"))["items"]
    return str(next(item["state"] for item in listed if item["id"] == invitation_id))


def test_an_invited_person_accepts_once_and_is_a_member(people: Personas) -> None:
    alice, nora = Api.of(people.alice), Api.of(make_user("new"))
    invitation_id, secret = _invite(alice)
    assert nora.get("projects/vision").status_code == 404
    accepted = nora.post("invitations/accept", {"token": secret})
    assert json_of(accepted) == {"project": "vision", "team": None, "role": "contributor"}
    assert json_of(nora.get("projects/vision"))["role"] == "contributor"
    assert refusal(nora.post("invitations/accept", {"token": secret})).status == 404
    assert _state(alice, invitation_id) == "accepted"


def test_an_invitation_works_for_its_address_alone(people: Personas) -> None:
    _, secret = _invite(Api.of(people.alice))
    answer = Api.of(people.charlie).post("invitations/accept", {"token": secret})
    assert refusal(answer).code == "other_address"
    assert not Membership.objects.filter(user=people.charlie, project=people.vision).exists()


def test_addresses_are_compared_without_regard_to_case(people: Personas) -> None:
    _, secret = _invite(Api.of(people.alice), email="New@Example.ORG")
    assert Api.of(make_user("new")).post("invitations/accept", {"token": secret}).status_code == 200


def test_an_invitation_ends_after_its_days(people: Personas) -> None:
    alice, nora = Api.of(people.alice), make_user("new")
    invitation_id, secret = _invite(alice, expires_in_days=3)
    with clock.frozen(clock.now() + timedelta(days=3, seconds=1)):
        answer = Api.of(nora).post("invitations/accept", {"token": secret})
        assert refusal(answer).status == 404
        assert _state(alice, invitation_id) == "expired"
        assert Browser().get(f"/invitations/{secret}").status_code == 404


def test_a_withdrawn_invitation_no_longer_works(people: Personas) -> None:
    alice, nora = Api.of(people.alice), Api.of(make_user("new"))
    invitation_id, secret = _invite(alice)
    assert alice.delete(f"projects/vision/invitations/{invitation_id}").status_code == 204
    assert alice.delete(f"projects/vision/invitations/{invitation_id}").status_code == 404
    assert refusal(nora.post("invitations/accept", {"token": secret})).status == 404
    assert _state(alice, invitation_id) == "revoked"


def test_a_newer_invitation_replaces_the_open_one(people: Personas) -> None:
    alice, nora = Api.of(people.alice), Api.of(make_user("new"))
    first, old = _invite(alice)
    _, new = _invite(alice, role="viewer")
    assert _state(alice, first) == "revoked"
    assert refusal(nora.post("invitations/accept", {"token": old})).status == 404
    assert json_of(nora.post("invitations/accept", {"token": new}))["role"] == "viewer"


def test_somebody_who_is_a_member_is_not_invited_again(people: Personas) -> None:
    wish = WISH | {"email": people.bob.email}
    answer = Api.of(people.alice).post("projects/vision/invitations", wish)
    assert refusal(answer).code == "already_member"


def test_only_the_hash_of_a_link_is_stored(people: Personas) -> None:
    invitation_id, secret = _invite(Api.of(people.alice))
    stored = Invitation.objects.get(pk=invitation_id)
    assert secret not in str(vars(stored))
    assert len(stored.token_hash) == 64


def test_the_link_is_mailed_to_the_invited_address_alone(people: Personas) -> None:
    _, secret = _invite(Api.of(people.alice))
    [mail] = OutboxMail.objects.all()
    assert mail.to == "new@example.org"
    assert secret in mail.body
    assert "alice@example.org" in mail.body


def test_a_name_cannot_add_lines_to_the_mail(people: Personas) -> None:
    User.objects.filter(pk=people.alice.pk).update(name="Eve\nBcc: all@example.org")
    _invite(Api.of(people.alice))
    [mail] = OutboxMail.objects.all()
    assert "\n" not in mail.subject


def test_nobody_makes_an_account_without_an_invitation(people: Personas) -> None:
    browser = Browser()
    assert b"password1" not in browser.get("/account/join").content
    answer = browser.client.post("/account/join", {"email": "x@example.org", "password1": "x" * 20})
    assert answer.status_code == 403
    trusting = Browser()
    trusting.client.handler.enforce_csrf_checks = False
    trusting.client.post("/account/join", {"email": "x@example.org", "password1": "long-phrase-1"})
    assert not User.objects.filter(email="x@example.org").exists()


def test_an_invited_stranger_makes_an_account_for_the_invited_address(people: Personas) -> None:
    _, secret = _invite(Api.of(people.alice))
    browser = Browser()
    assert browser.get(f"/invitations/{secret}").status_code == 200
    answer = browser.send(
        "/account/join", email="other@example.org", name="Nora", password1="a-long-phrase-of-hers"
    )
    assert answer.status_code == 302
    assert answer.headers["Location"] == "/p/vision"
    assert not User.objects.filter(email="other@example.org").exists()
    nora = User.objects.get(email="new@example.org")
    assert json_of(Api.of(nora).get("projects/vision"))["role"] == "contributor"
    assert browser.is_signed_in


def test_joining_with_an_invited_address_that_has_an_account_tells_nothing_of_others(
    people: Personas,
) -> None:
    """The form takes the invited address and no other, so it cannot be asked about others."""
    _, secret = _invite(Api.of(people.alice), email=people.charlie.email)
    browser = Browser()
    browser.get(f"/invitations/{secret}")
    answers = []
    for email in (people.bob.email, "nobody@example.org"):
        answer = browser.send(
            "/account/join", email=email, name="Eve", password1="a-long-phrase-of-eve"
        )
        answers.append((answer.status_code, answer.headers.get("Location")))
    assert answers[0] == answers[1]
    assert answers[0][0] < 500
    charlie = User.objects.get(pk=people.charlie.pk)
    assert not charlie.check_password("a-long-phrase-of-eve")
    assert not browser.is_signed_in


def test_an_invitation_of_an_archived_project_no_longer_works(people: Personas) -> None:
    alice, nora = Api.of(people.alice), Api.of(make_user("new"))
    _, secret = _invite(alice)
    alice.delete("projects/vision")
    assert refusal(nora.post("invitations/accept", {"token": secret})).status == 404


def test_an_accepted_invitation_never_lowers_a_role(people: Personas) -> None:
    _, secret = _invite(Api.of(people.alice), role="viewer")
    nora = make_user("new")
    Membership.objects.create(user=nora, project=people.vision, role="maintainer")
    Api.of(nora).post("invitations/accept", {"token": secret})
    assert json_of(Api.of(nora).get("projects/vision"))["role"] == "maintainer"


@pytest.mark.thorough
def test_many_who_accept_at_the_same_moment_are_one(portal: RunningPortal) -> None:
    with portal.client("alice") as alice:
        slug = alice.post("/projects", json={"name": "Rush"}).json()["slug"]
        wish = {"email": "bob@example.org", "role": "viewer"}
        link = alice.post(f"/projects/{slug}/invitations", json=wish).json()["link"]

    def accept(_: int) -> int:
        with portal.client("bob") as bob:
            body = {"token": link.rpartition("/")[2]}
            return bob.post("/invitations/accept", json=body).status_code

    with ThreadPoolExecutor(8) as pool:
        answers = sorted(pool.map(accept, range(16)))
    assert answers == [200] + [404] * 15
    with portal.client("alice") as alice:
        members = alice.get(f"/projects/{slug}/members").json()["items"]
        events = alice.get("/audit", params={"verb": "invitation.accept"}).json()["items"]
    assert sorted(member["role"] for member in members) == ["owner", "viewer"]
    assert len([event for event in events if event["project"] == slug]) == 1
