"""Service accounts: tokens for one project, and no way to sign in, approve or manage."""

from typing import Any

import pytest
from django.contrib.auth import SESSION_KEY
from django.core.management import CommandError, call_command
from django.db import IntegrityError, transaction

from portal.accounts.models import Membership, OutboxMail, ServiceAccount, User
from portal.accounts.principal import Principal
from portal.accounts.services.tokens import create_token
from portal.compute.models import Pool
from portal.compute.services.pool_accounts import request_link
from portal.compute.services.pools import create_pool
from portal.core.errors import Forbidden, InvalidInput
from slipway.schemas.accounts import SERVICE_SCOPES, Role, Scope
from tests.personas import PASSWORD, Api, Personas, json_of
from tests.portal.accounts.browser import Browser, plain
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres

ACCOUNTS = "projects/vision/service-accounts"
NIGHTLY = f"{ACCOUNTS}/nightly"
ADDRESS = "nightly@vision.service-account"


@pytest.fixture
def alice(people: Personas) -> Api:
    """The owner of the project."""
    return Api.of(people.alice)


@pytest.fixture
def mia(people: Personas) -> Api:
    """A maintainer of the project."""
    return Api.of(people.mia)


def _create(api: Api, role: str = "maintainer", name: str = "nightly") -> dict[str, Any]:
    answer = api.post(ACCOUNTS, {"name": name, "role": role, "description": "Trains at night."})
    assert answer.status_code == 201, answer.content
    created: dict[str, Any] = json_of(answer)
    return created


def _token(api: Api, **body: Any) -> Api:
    """Return a client with a new token of the account, with every scope that it can have."""
    body = {"name": "ci", "scopes": sorted(SERVICE_SCOPES)} | body
    return Api(json_of(api.post(f"{NIGHTLY}/tokens", body))["token"])


def _events(api: Api, actor: str) -> list[tuple[str, str]]:
    events = json_of(api.get("projects/vision/audit?limit=100"))["items"]
    return [(event["verb"], event["target_label"]) for event in events if event["actor"] == actor]


def test_an_owner_creates_an_account_with_a_role_in_one_project(alice: Api, mia: Api) -> None:
    created = _create(alice)
    assert (created["name"], created["role"], created["state"]) == (
        "nightly",
        "maintainer",
        "active",
    )
    assert (created["address"], created["created_by"]) == (ADDRESS, "alice@example.org")
    assert json_of(mia.get(ACCOUNTS))["items"] == [created]
    assert json_of(mia.get(f"{ACCOUNTS}?q=night"))["items"] == [created]
    assert json_of(mia.get(f"{ACCOUNTS}?q=daily"))["items"] == []
    changed = json_of(alice.patch(NIGHTLY, {"role": "viewer", "description": "Reads."}))
    assert (changed["role"], changed["description"]) == ("viewer", "Reads.")
    events = _events(alice, "alice@example.org")
    assert ("service_account.create", "nightly") in events
    assert ("service_account.change", "nightly") in events


@pytest.mark.parametrize("role", ["owner", "administrator", ""])
def test_an_account_never_owns_a_project(alice: Api, role: str) -> None:
    assert refusal(alice.post(ACCOUNTS, {"name": "n", "role": role})).field == "role"


@pytest.mark.parametrize("name", ["new", "me", "Nightly", "a b", "-a", "a" * 49])
def test_a_bad_name_is_refused(alice: Api, name: str) -> None:
    assert refusal(alice.post(ACCOUNTS, {"name": name})).field == "name"


def test_a_name_is_used_once_even_after_the_account_is_deleted(alice: Api) -> None:
    _create(alice)
    assert refusal(alice.post(ACCOUNTS, {"name": "nightly"})).code == "name_taken"
    assert alice.delete(NIGHTLY).status_code == 204
    assert alice.get(NIGHTLY).status_code == 404
    assert refusal(alice.post(ACCOUNTS, {"name": "nightly"})).code == "name_taken"
    assert json_of(alice.get(ACCOUNTS))["items"] == []


def test_maintainers_use_accounts_and_only_owners_create_them(
    people: Personas, alice: Api, mia: Api
) -> None:
    _create(alice)
    bob = Api.of(people.bob)
    for api, body in ((mia, {"name": "other"}), (bob, {"name": "other"})):
        assert api.post(ACCOUNTS, body).status_code == 403
        assert api.delete(NIGHTLY).status_code == 403
        assert api.patch(NIGHTLY, {"role": "viewer"}).status_code == 403
        assert api.post(f"{NIGHTLY}/enable").status_code == 403
    assert bob.post(f"{NIGHTLY}/tokens", {"name": "x", "preset": "ci"}).status_code == 403
    assert bob.get(f"{NIGHTLY}/tokens").status_code == 403
    assert bob.post(f"{NIGHTLY}/disable").status_code == 403
    assert mia.post(f"{NIGHTLY}/tokens", {"name": "x", "preset": "ci"}).status_code == 201
    assert mia.post(f"{NIGHTLY}/disable").status_code == 200
    assert Api.of(people.vera).get(NIGHTLY).status_code == 200


def test_an_account_of_another_project_is_like_a_missing_one(people: Personas, alice: Api) -> None:
    charlie = Api.of(people.charlie)
    made = charlie.post("projects/other/service-accounts", {"name": "nightly"})
    assert made.status_code == 201
    missing, foreign = alice.get(f"{ACCOUNTS}/nobody"), alice.get(NIGHTLY)
    assert refusal(missing).code == refusal(foreign).code == "not_found"
    assert alice.post(f"{NIGHTLY}/tokens", {"name": "x", "preset": "ci"}).status_code == 404
    _create(alice)
    other = charlie.post("projects/other/service-accounts/nightly/tokens", {"name": "x"} | CI)
    token_id = json_of(other)["id"]
    assert alice.delete(f"{NIGHTLY}/tokens/{token_id}").status_code == 404
    assert Api(json_of(other)["token"]).get("projects/other").status_code == 200


CI = {"preset": "ci"}


def test_a_token_is_shown_once_and_opens_its_project_alone(
    people: Personas, alice: Api, mia: Api
) -> None:
    _create(alice)
    made = json_of(mia.post(f"{NIGHTLY}/tokens", {"name": "ci", "expires_in_days": 30} | CI))
    assert (made["created_by"], made["project"]) == ("mia@example.org", "vision")
    assert set(made["scopes"]) <= SERVICE_SCOPES
    service = Api(made["token"])
    assert json_of(service.get("whoami"))["user"]["name"] == "nightly (service account)"
    assert [item["slug"] for item in json_of(service.get("projects"))["items"]] == ["vision"]
    assert service.get("projects/other").status_code == 404
    for path in ("tokens", "teams", "audit"):
        assert service.get(path).status_code == 403
    listed = mia.get(f"{NIGHTLY}/tokens")
    assert made["token"] not in listed.content.decode()
    (token,) = json_of(listed)["items"]
    assert token["last_used_at"]
    account = json_of(mia.get(NIGHTLY))
    assert (account["tokens"], account["last_used_at"]) == (1, token["last_used_at"])
    assert ("service_account.token", "nightly") in _events(alice, "mia@example.org")
    assert mia.delete(f"{NIGHTLY}/tokens/{made['id']}").status_code == 204
    assert refusal(service.get("whoami")).code == "invalid_token"
    assert json_of(mia.get(NIGHTLY))["tokens"] == 0
    assert json_of(alice.get("tokens"))["items"][0]["name"] == "test", "not the account's"


def test_a_token_has_no_scope_of_people_and_none_that_its_maker_lacks(
    people: Personas, alice: Api
) -> None:
    _create(alice)
    for scope in set(Scope) - SERVICE_SCOPES:
        answer = alice.post(f"{NIGHTLY}/tokens", {"name": "x", "scopes": [scope]})
        assert refusal(answer).code == "person_needed"
    narrow = Api.of(people.mia, scopes=[Scope.TOKENS_WRITE, Scope.FILES_READ])
    wide = {"name": "x", "scopes": ["files:read", "files:write"]}
    assert refusal(narrow.post(f"{NIGHTLY}/tokens", wide)).code == "missing_scope"
    assert narrow.post(f"{NIGHTLY}/tokens", wide | {"scopes": ["files:read"]}).status_code == 201
    none: dict[str, Any] = {"name": "x"}
    assert refusal(alice.post(f"{NIGHTLY}/tokens", none)).field == "scopes"
    everything = {"name": "x", "preset": "everything"}
    assert set(json_of(alice.post(f"{NIGHTLY}/tokens", everything))["scopes"]) == SERVICE_SCOPES
    for days in (0, 366):
        answer = alice.post(f"{NIGHTLY}/tokens", {"name": "x", "expires_in_days": days} | CI)
        assert refusal(answer).field == "expires_in_days"


def test_a_service_account_manages_nothing(people: Personas, alice: Api) -> None:
    _create(alice)
    service = _token(alice)
    for path, body in (
        (ACCOUNTS, {"name": "more"}),
        (f"{NIGHTLY}/tokens", {"name": "more"} | CI),
        ("projects/vision/invitations", {"email": "x@example.org"}),
        ("projects", {"name": "Mine"}),
        ("teams", {"name": "Mine"}),
        ("tokens", {"name": "x"} | CI),
    ):
        assert service.post(path, body).status_code == 403, path
    member = f"projects/vision/members/{people.bob.pk}"
    assert service.patch(member, {"role": "viewer"}).status_code == 403
    assert service.delete(member).status_code == 403
    assert service.put("projects/vision/secrets/X", {"value": "x"}).status_code == 403
    assert service.patch("projects/vision", {"name": "X"}).status_code == 403


def test_what_belongs_to_a_person_is_refused_to_a_service_account(
    people: Personas, alice: Api
) -> None:
    _create(alice)
    service = _token(alice)
    server = service.post("projects/vision/notebooks/servers", {"name": "lab", "tier": "cpu"})
    assert refusal(server).code == "person_needed"
    create_pool(name="twin", engine="slurm", settings={"as_person": True})
    user = ServiceAccount.objects.get().user
    with pytest.raises(InvalidInput, match="belongs to people"):
        request_link(pool=Pool.objects.get(name="twin"), user=user)


def test_a_stored_scope_beyond_those_of_service_accounts_opens_nothing(
    people: Personas, alice: Api
) -> None:
    _create(alice)
    service = _token(alice)
    user = ServiceAccount.objects.get().user
    user.tokens.update(scopes=[scope.value for scope in Scope])
    answer = service.post("projects/vision/invitations", {"email": "x@example.org"})
    assert refusal(answer).code == "person_needed"
    with pytest.raises(Forbidden):
        create_token(by=Principal(user), name="x", scopes=[Scope.FILES_READ])


def test_a_disabled_account_stops_at_once_and_an_owner_enables_it(alice: Api, mia: Api) -> None:
    _create(alice)
    service = _token(mia)
    assert service.get("projects/vision").status_code == 200
    assert json_of(mia.post(f"{NIGHTLY}/disable"))["state"] == "disabled"
    assert refusal(service.get("projects/vision")).code == "invalid_token"
    refused = mia.post(f"{NIGHTLY}/tokens", {"name": "x"} | CI)
    assert refusal(refused).code == "account_disabled"
    assert json_of(alice.post(f"{NIGHTLY}/enable"))["state"] == "active"
    assert service.get("projects/vision").status_code == 200
    assert alice.delete(NIGHTLY).status_code == 204
    assert refusal(service.get("projects/vision")).code == "invalid_token"


def test_no_door_lets_a_service_account_sign_in(people: Personas, alice: Api) -> None:
    _create(alice)
    user = ServiceAccount.objects.get().user
    assert not user.has_usable_password()
    for password in ("", PASSWORD, "!", user.password):
        browser = Browser()
        browser.sign_in(ADDRESS, password or "x")
        assert not browser.is_signed_in
    # A reset of the password answers as for anybody, and no mail leaves.
    answers = [
        plain(Browser().send("/account/password/reset", email=email))
        for email in (ADDRESS, "nobody@example.org")
    ]
    assert answers[0][0] == answers[1][0]
    assert not OutboxMail.objects.filter(to=ADDRESS).exclude(sent_at__isnull=False, body="")
    # A session that somebody forged would not be valid either.
    forged = Browser()
    forged.client.force_login(user)
    assert forged.client.session[SESSION_KEY] == user.pk
    assert not forged.is_signed_in
    assert Api().get("whoami").status_code == 401
    with pytest.raises(CommandError):
        call_command("user_token", "--user", ADDRESS)


@pytest.mark.parametrize(
    "change", [{"is_administrator": True}, {"password": "pbkdf2_sha256$1$a$b"}]
)
def test_the_database_refuses_a_service_account_that_could_sign_in(
    people: Personas, alice: Api, change: dict[str, Any]
) -> None:
    _create(alice)
    accounts = User.objects.filter(email=ADDRESS)
    with pytest.raises(IntegrityError), transaction.atomic():
        accounts.update(**change)


def test_a_service_account_is_no_person_of_any_list(people: Personas, alice: Api) -> None:
    created = _create(alice)
    user = ServiceAccount.objects.get().user
    root = Api.of(people.root)
    assert ADDRESS not in root.get("users?limit=200").content.decode()
    assert ADDRESS not in alice.get("projects/vision/members").content.decode()
    assert root.patch(f"users/{user.pk}", {"is_administrator": True}).status_code == 404
    member = f"projects/vision/members/{user.pk}"
    assert alice.patch(member, {"role": "owner"}).status_code == 404
    assert alice.delete(member).status_code == 404
    invited = alice.post("projects/vision/invitations", {"email": ADDRESS, "role": "owner"})
    assert refusal(invited).code == "service_account"
    suspended = root.patch(
        f"users/{people.alice.pk}", {"is_active": False, "hand_over_to": user.pk}
    )
    assert refusal(suspended).field == "hand_over_to"
    assert created["role"] == Membership.objects.get(user=user).role


def test_no_person_may_be_called_a_service_account(people: Personas) -> None:
    browser = Browser()
    browser.sign_in("bob@example.org")
    answer = browser.send("/settings/profile", name="nightly (service account)")
    people.bob.refresh_from_db()
    assert (answer.status_code, people.bob.name) == (422, "Bob")


def test_what_an_account_does_is_audited_under_its_name(alice: Api) -> None:
    _create(alice)
    service = _token(alice)
    body = {"name": "data"}
    assert service.post("projects/vision/datasets", body).status_code == 201
    assert _events(alice, "nightly (service account)") == [("dataset.create", "data")]
    query = "projects/vision/audit?actor=nightly%20(service%20account)"
    (event,) = json_of(alice.get(query))["items"]
    assert event["token_id"].startswith("tok_")


def test_a_creator_who_loses_the_role_raises_nothing(people: Personas, alice: Api) -> None:
    assert alice.patch(f"projects/vision/members/{people.mia.pk}", {"role": "owner"}).status_code
    mia = Api.of(people.mia)
    _create(mia, role="contributor")
    service = _token(mia)
    Membership.objects.filter(user=people.mia).update(role=Role.VIEWER)
    assert json_of(alice.get(NIGHTLY))["role"] == "contributor"
    assert service.get("projects/vision/audit").status_code == 403, "for maintainers"
    assert mia.post(f"{NIGHTLY}/tokens", {"name": "x"} | CI).status_code == 403
    assert mia.post(f"{NIGHTLY}/enable").status_code == 403
