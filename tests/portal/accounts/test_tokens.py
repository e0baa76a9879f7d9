"""API tokens: shown once, stored as a hash, narrower than their person, revoked at once."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.accounts.models import ApiToken
from portal.core import clock
from slipway.schemas.accounts import Scope
from tests.personas import Api, Personas, json_of, make_token
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres

NOON = datetime(2030, 1, 1, 12, 0, tzinfo=UTC)


def test_a_token_is_shown_once_and_stored_as_a_hash(people: Personas) -> None:
    alice = Api.of(people.alice)
    made = json_of(alice.post("tokens", {"name": "ci", "scopes": ["projects:read"]}))
    secret = made["token"]
    stored = ApiToken.objects.get(pk=made["id"])
    assert stored.token_hash == hashlib.sha256(secret.encode()).hexdigest()
    assert secret not in str(vars(stored))
    assert secret.startswith("slp_")
    assert len(secret) == 44
    assert made["prefix"] == secret[:12]
    listed = alice.get("tokens").content.decode()
    assert secret not in listed
    assert made["prefix"] in listed


def test_two_tokens_are_never_alike(people: Personas) -> None:
    assert len({make_token(people.alice) for _ in range(20)}) == 20


@pytest.mark.parametrize("scope", [scope for scope in Scope if scope != Scope.ADMIN])
def test_a_token_has_only_the_scopes_it_was_made_with(people: Personas, scope: Scope) -> None:
    only = Api.of(people.alice, scopes=[scope])
    expected = {
        "projects": Scope.PROJECTS_READ,
        "tokens": Scope.TOKENS_READ,
        "audit": Scope.AUDIT_READ,
        "projects/vision/files": Scope.FILES_READ,
    }
    for path, needed in expected.items():
        answer = only.get(path)
        assert answer.status_code == (200 if scope == needed else 403), path
        if scope != needed:
            assert refusal(answer).code == "missing_scope"
    assert only.get("whoami").status_code == 200


def test_a_preset_sets_the_scopes_of_a_token(people: Personas) -> None:
    alice, root = Api.of(people.alice), Api.of(people.root)
    made = json_of(alice.post("tokens", {"name": "m", "preset": "mlflow"}))
    assert made["scopes"] == ["experiments:read", "experiments:write", "projects:read"]
    everything = {"name": "e", "preset": "everything"}
    assert "admin" not in json_of(alice.post("tokens", everything))["scopes"]
    assert set(json_of(root.post("tokens", everything))["scopes"]) == set(Scope)
    both = alice.post("tokens", {"name": "b", "preset": "ci", "scopes": ["audit:read"]})
    assert refusal(both).field == "preset"
    assert refusal(alice.post("tokens", {"name": "n"})).field == "scopes"


def test_a_token_makes_no_token_that_reaches_further(people: Personas) -> None:
    narrow = Api.of(people.alice, scopes=[Scope.TOKENS_WRITE])
    answer = narrow.post("tokens", {"name": "x", "scopes": ["projects:write"]})
    assert refusal(answer).code == "missing_scope"
    assert narrow.post("tokens", {"name": "x", "scopes": ["tokens:write"]}).status_code == 201


def test_only_administrators_make_tokens_with_the_scope_admin(people: Personas) -> None:
    answer = Api.of(people.alice).post("tokens", {"name": "x", "scopes": ["admin"]})
    assert refusal(answer).code == "not_administrator"
    assert Api.of(people.root).post("tokens", {"name": "x", "scopes": ["admin"]}).status_code == 201


def test_an_administrator_who_steps_down_loses_what_the_token_could(people: Personas) -> None:
    root, bob = Api.of(people.root), people.bob
    assert root.patch(f"users/{bob.pk}", {"is_administrator": True}).status_code == 200
    bob.refresh_from_db()
    token = Api.of(bob)
    assert token.get("users").status_code == 200
    root.patch(f"users/{bob.pk}", {"is_administrator": False})
    assert token.get("users").status_code == 403


def test_a_confined_token_sees_its_project_and_nothing_else(people: Personas) -> None:
    json_of(Api.of(people.alice).post("projects", {"name": "Second"}))
    confined = Api.of(people.alice, project=people.vision)
    assert [item["slug"] for item in json_of(confined.get("projects"))["items"]] == ["vision"]
    assert confined.get("projects/vision").status_code == 200
    assert confined.get("projects/second").status_code == 404
    for path in ("tokens", "teams", "audit"):
        assert refusal(confined.get(path)).code == "token_confined"
    for path, body in (("projects", {"name": "X"}), ("teams", {"name": "X"})):
        assert refusal(confined.post(path, body)).code == "token_confined"
    wide = {"name": "x", "scopes": ["projects:read"]}
    assert refusal(confined.post("tokens", wide)).code == "token_confined"


def test_a_token_ends_at_its_hour(people: Personas) -> None:
    with clock.frozen(NOON):
        token = Api.of(people.alice, expires_in_days=1)
    with clock.frozen(NOON + timedelta(days=1, seconds=-1)):
        assert token.get("whoami").status_code == 200
    with clock.frozen(NOON + timedelta(days=1)):
        assert refusal(token.get("whoami")).code == "invalid_token"


def test_a_revoked_token_ends_at_once_and_for_ever(people: Personas) -> None:
    alice = Api.of(people.alice)
    made = json_of(alice.post("tokens", {"name": "x", "scopes": ["projects:read"]}))
    token = Api(made["token"])
    assert token.get("projects").status_code == 200
    assert alice.delete(f"tokens/{made['id']}").status_code == 204
    assert refusal(token.get("projects")).code == "invalid_token"
    assert alice.delete(f"tokens/{made['id']}").status_code == 204, "revoking again is no error"
    [listed] = [item for item in json_of(alice.get("tokens"))["items"] if item["id"] == made["id"]]
    assert listed["revoked_at"]


def test_the_last_use_is_noted_at_most_once_a_minute(people: Personas) -> None:
    with clock.frozen(NOON):
        token = Api.of(people.alice)
    row = ApiToken.objects.get(user=people.alice)

    def use_at(now: datetime) -> tuple[datetime | None, bool]:
        with clock.frozen(now), CaptureQueriesContext(connection) as captured:
            assert token.get("whoami").status_code == 200
        row.refresh_from_db()
        return row.last_used_at, any(query["sql"].startswith("UPDATE") for query in captured)

    assert use_at(NOON) == (NOON, True)
    assert use_at(NOON + timedelta(seconds=59)) == (NOON, False)
    later = NOON + timedelta(seconds=61)
    assert use_at(later) == (later, True)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer slp_",
        "Bearer slp_" + "A" * 40,
        "Bearer slp_" + "A" * 4_000,
        "Bearer null",
        "Basic YWxpY2U6eA==",
        "Token slp_x",
        "Bearer slp_%00",
        "Bearer \u00e9",
        "Bearer a b c",
    ],
)
def test_what_is_no_usable_token_is_refused_alike(people: Personas, header: str) -> None:
    answer = Api().get("whoami", Authorization=header)
    problem = refusal(answer)
    assert (problem.status, problem.code) == (401, "invalid_token")
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_what_is_no_usable_token_is_looked_up_once(people: Personas) -> None:
    with CaptureQueriesContext(connection) as queries:
        assert Api(token="slp_" + "x" * 40).get("whoami").status_code == 401
    looked_up = [query["sql"] for query in queries if "token_hash" in query["sql"]]
    assert len(looked_up) == 1


def test_a_bad_token_is_not_saved_by_a_session(people: Personas) -> None:
    api = Api()
    api.client.force_login(people.alice)
    assert api.get("whoami").status_code == 200
    assert refusal(api.get("whoami", Authorization="Bearer slp_bad")).status == 401


def test_the_name_of_the_scheme_is_read_in_any_case(people: Personas) -> None:
    secret = make_token(people.alice)
    assert Api().get("whoami", Authorization=f"bearer {secret}").status_code == 200
    assert Api().get("whoami", Authorization=f"BEARER  {secret} ").status_code == 200


def test_another_persons_token_cannot_be_revoked(people: Personas) -> None:
    bob = Api.of(people.bob)
    other = ApiToken.objects.get(user=people.bob)
    assert Api.of(people.alice).delete(f"tokens/{other.pk}").status_code == 404
    assert bob.get("whoami").status_code == 200
