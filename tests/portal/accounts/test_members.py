"""Roles and members: who may change whom, and that an owner always stays."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from portal.accounts.models import AuditEvent, Membership, Team, User
from portal.accounts.services.teams import create_team
from slipway.schemas.accounts import Role
from tests.personas import Api, Personas, json_of
from tests.portals import RunningPortal
from tests.security.problems import refusal

pytestmark = pytest.mark.postgres

ROUNDS = 5


@pytest.fixture
def crew(people: Personas) -> Team:
    """A team of Alice's with Mia as maintainer."""
    team = create_team(by=people.alice, name="Crew")
    Membership.objects.create(user=people.mia, team=team, role=Role.MAINTAINER)
    return team


def _role(api: Api, group: str, user: User, role: str) -> int:
    return api.patch(f"{group}/members/{user.pk}", {"role": role}).status_code


@pytest.mark.parametrize("group", ["projects/vision", "teams/crew"])
def test_the_last_owner_can_neither_step_down_nor_leave(
    people: Personas, crew: Team, group: str
) -> None:
    alice = Api.of(people.alice)
    for role in ("viewer", "contributor", "maintainer"):
        answer = alice.patch(f"{group}/members/{people.alice.pk}", {"role": role})
        assert refusal(answer).code == "last_owner"
    assert refusal(alice.delete(f"{group}/members/{people.alice.pk}")).code == "last_owner"
    assert _role(alice, group, people.mia, "owner") == 200
    assert alice.delete(f"{group}/members/{people.alice.pk}").status_code == 204
    assert alice.get(group).status_code == 404


def test_an_owner_who_is_suspended_does_not_count(people: Personas) -> None:
    alice = Api.of(people.alice)
    assert _role(alice, "projects/vision", people.bob, "owner") == 200
    User.objects.filter(pk=people.bob.pk).update(is_active=False)
    answer = alice.delete(f"projects/vision/members/{people.alice.pk}")
    assert refusal(answer).code == "last_owner"


def test_an_owner_of_the_team_owns_its_projects(people: Personas, crew: Team) -> None:
    mia, alice = Api.of(people.mia), Api.of(people.alice)
    made = json_of(mia.post("projects", {"name": "Shared", "team": "crew"}))
    assert json_of(alice.get(f"projects/{made['slug']}"))["role"] == "owner"
    left = mia.delete(f"projects/{made['slug']}/members/{people.mia.pk}")
    assert left.status_code == 204, "Alice owns it through the team"
    assert json_of(mia.get(f"projects/{made['slug']}"))["role"] == "maintainer"


def test_the_higher_of_two_roles_counts(people: Personas, crew: Team) -> None:
    Membership.objects.create(user=people.vera, team=crew, role=Role.VIEWER)
    made = json_of(Api.of(people.alice).post("projects", {"name": "Both", "team": "crew"}))
    project = f"projects/{made['slug']}"
    assert json_of(Api.of(people.vera).get(project))["role"] == "viewer"
    direct = Membership.objects.create(
        user=people.vera, project_id=made["id"], role=Role.CONTRIBUTOR
    )
    assert json_of(Api.of(people.vera).get(project))["role"] == "contributor"
    direct.delete()
    assert json_of(Api.of(people.vera).get(project))["role"] == "viewer"


def test_a_maintainer_makes_and_removes_members_but_no_owners(people: Personas) -> None:
    mia = Api.of(people.mia)
    assert _role(mia, "projects/vision", people.vera, "contributor") == 200
    assert _role(mia, "projects/vision", people.vera, "owner") == 403
    assert _role(mia, "projects/vision", people.mia, "owner") == 403
    assert _role(mia, "projects/vision", people.alice, "viewer") == 403
    assert mia.delete(f"projects/vision/members/{people.alice.pk}").status_code == 403
    body = {"email": "new@example.org", "role": "owner"}
    assert mia.post("projects/vision/invitations", body).status_code == 403
    assert mia.delete(f"projects/vision/members/{people.bob.pk}").status_code == 204


def test_a_viewer_may_leave_but_remove_nobody_else(people: Personas) -> None:
    vera = Api.of(people.vera)
    assert vera.delete(f"projects/vision/members/{people.bob.pk}").status_code == 403
    assert vera.delete(f"projects/vision/members/{people.vera.pk}").status_code == 204
    assert vera.get("projects/vision").status_code == 404


def test_the_same_role_again_changes_and_records_nothing(people: Personas) -> None:
    alice = Api.of(people.alice)
    before = AuditEvent.objects.count()
    assert _role(alice, "projects/vision", people.bob, "contributor") == 200
    assert AuditEvent.objects.count() == before


def test_an_archived_project_is_hidden_from_all_but_its_owners(people: Personas) -> None:
    alice, mia = Api.of(people.alice), Api.of(people.mia)
    assert alice.delete("projects/vision").status_code == 204
    assert alice.delete("projects/vision").status_code == 204, "archiving again is no error"
    assert mia.get("projects/vision").status_code == 404
    assert alice.get("projects/vision/members").status_code == 404
    assert json_of(alice.get("projects"))["items"] == []
    listed = json_of(alice.get("projects?archived=true"))["items"]
    assert [project["slug"] for project in listed] == ["vision"]
    assert json_of(mia.get("projects?archived=true"))["items"] == []
    assert alice.post("projects/vision/restore").status_code == 200
    assert mia.get("projects/vision").status_code == 200


def test_the_last_administrator_can_neither_step_down_nor_be_suspended(people: Personas) -> None:
    root = Api.of(people.root)
    for change in ({"is_administrator": False}, {"is_active": False}):
        answer = root.patch(f"users/{people.root.pk}", change)
        assert refusal(answer).code == "last_administrator"
    assert root.patch(f"users/{people.bob.pk}", {"is_administrator": True}).status_code == 200
    assert root.patch(f"users/{people.root.pk}", {"is_administrator": False}).status_code == 200
    assert root.get("users").status_code == 403


def test_suspending_the_last_owner_needs_an_heir(people: Personas) -> None:
    root = Api.of(people.root)
    path = f"users/{people.alice.pk}"
    problem = refusal(root.patch(path, {"is_active": False}))
    assert (problem.code, problem.field) == ("last_owner", "hand_over_to")
    assert "vision" in problem.detail
    nobody = {"is_active": False, "hand_over_to": "usr_none"}
    assert refusal(root.patch(path, nobody)).field == "hand_over_to"
    assert refusal(root.patch(path, nobody | {"hand_over_to": people.alice.pk})).status == 422
    assert root.patch(path, nobody | {"hand_over_to": people.bob.pk}).status_code == 200
    assert json_of(Api.of(people.bob).get("projects/vision"))["role"] == "owner"
    assert AuditEvent.objects.filter(verb="member.hand_over").count() == 1


def _owners(portal: RunningPortal, slug: str) -> list[str]:
    names = []
    for name in ("alice", "bob"):
        with portal.client(name) as client:
            answer = client.get(f"/projects/{slug}")
            if answer.status_code == 200 and answer.json()["role"] == "owner":
                names.append(name)
    return names


def _user_id(portal: RunningPortal, name: str) -> str:
    with portal.client(name) as client:
        return str(client.get("/whoami").json()["user"]["id"])


def _project_of_two(portal: RunningPortal) -> str:
    with portal.client("alice") as alice, portal.client("bob") as bob:
        slug = str(alice.post("/projects", json={"name": "Two owners"}).json()["slug"])
        body = {"email": "bob@example.org", "role": "owner"}
        link = alice.post(f"/projects/{slug}/invitations", json=body).json()["link"]
        token = link.rpartition("/")[2]
        assert bob.post("/invitations/accept", json={"token": token}).status_code == 200
    return slug


@pytest.mark.thorough
@pytest.mark.parametrize("way", ["demote each other", "leave together"])
def test_two_owners_who_go_at_the_same_moment_leave_one(portal: RunningPortal, way: str) -> None:
    ids = {name: _user_id(portal, name) for name in ("alice", "bob")}
    for _ in range(ROUNDS):
        slug = _project_of_two(portal)

        def go(name: str, slug: str = slug) -> httpx.Response:
            other = "bob" if name == "alice" else "alice"
            with portal.client(name) as client:
                client.get("/whoami")
                if way == "leave together":
                    return client.delete(f"/projects/{slug}/members/{ids[name]}")
                return client.patch(
                    f"/projects/{slug}/members/{ids[other]}", json={"role": "viewer"}
                )

        with ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(go, ("alice", "bob")))
        codes = sorted(answer.status_code for answer in answers)
        assert codes[0] in (200, 204), [answer.text for answer in answers]
        assert codes[1] in (403, 404, 409), [answer.text for answer in answers]
        assert len(_owners(portal, slug)) == 1
