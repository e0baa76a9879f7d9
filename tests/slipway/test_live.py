"""The SDK against a real portal."""

import csv
import io
import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

import slipway
from slipway import errors
from slipway.schemas.accounts import ProjectOut, Role, Scope
from tests.live import LivePortal


@pytest.fixture
def alice(portal: LivePortal) -> Iterator[slipway.Client]:
    with slipway.Client(portal.url, portal.tokens["alice"]) as client:
        yield client


@pytest.fixture
def bob(portal: LivePortal) -> Iterator[slipway.Client]:
    with slipway.Client(portal.url, portal.tokens["bob"]) as client:
        yield client


@pytest.fixture
def root(portal: LivePortal) -> Iterator[slipway.Client]:
    with slipway.Client(portal.url, portal.tokens["root"]) as client:
        yield client


@pytest.fixture
def project(alice: slipway.Client) -> ProjectOut:
    """A fresh project that Alice owns."""
    return alice.projects.create(f"Project {secrets.token_hex(4)}")


def invitation_token(link: str) -> str:
    return link.rstrip("/").rpartition("/")[2]


def test_whoami_tells_the_person_and_the_token(alice: slipway.Client) -> None:
    me = alice.whoami()
    assert me.user.email == "alice@example.org"
    assert not me.is_administrator
    assert me.token is not None
    assert me.token.prefix.startswith("slp_")


def test_a_project_lives_from_creation_to_restoration(alice: slipway.Client) -> None:
    name = f"Churn {secrets.token_hex(4)}"
    made = alice.projects.create(name, description="Who leaves?")
    assert (made.name, made.role, made.archived_at) == (name, Role.OWNER, None)
    changed = alice.projects.edit(made.slug, description="Who stays?")
    assert (changed.name, changed.description) == (name, "Who stays?")
    alice.projects.archive(made.slug)
    assert made.slug not in [item.slug for item in alice.projects.list(search=name)]
    archived = alice.projects.list(search=name, archived=True)
    assert made.slug in [item.slug for item in archived]
    assert alice.projects.restore(made.slug).archived_at is None
    assert alice.projects.get(made.slug).description == "Who stays?"


def test_a_creation_whose_answer_was_lost_is_made_once(portal: LivePortal) -> None:
    name = f"Once {secrets.token_hex(4)}"
    answers: list[httpx.Response] = []

    class LosesTheFirstAnswer(httpx.HTTPTransport):
        """Brings every request to the portal, but not the first answer back."""

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            answers.append(super().handle_request(request))
            answers[-1].read()
            if len(answers) == 1:
                raise httpx.ReadTimeout("lost", request=request)
            return answers[-1]

    with slipway.Client(
        portal.url, portal.tokens["alice"], transport=LosesTheFirstAnswer()
    ) as client:
        made = client.projects.create(name)
        assert [answer.status_code for answer in answers] == [201, 201]
        assert [item.id for item in client.projects.list(search=name)] == [made.id]


def test_a_list_reaches_over_many_pages(alice: slipway.Client) -> None:
    word = secrets.token_hex(4)
    slugs = [alice.projects.create(f"{word} {number}").slug for number in range(5)]
    pages = alice.projects.list(search=word)
    first = pages.page(limit=2)
    second = pages.page(limit=2, cursor=first.next_cursor)
    assert [item.slug for item in first.items + second.items] == slugs[:0:-1]
    assert [item.slug for item in pages] == slugs[::-1]


def test_another_tenants_project_is_like_none(bob: slipway.Client, project: ProjectOut) -> None:
    messages = []
    for slug in (project.slug, "no-such-project"):
        with pytest.raises(errors.NotFound) as caught:
            bob.projects.get(slug)
        assert caught.value.request_id
        assert caught.value.next_step
        messages.append(caught.value.message)
    assert messages[0] == messages[1]


def test_a_person_is_invited_promoted_and_removed(
    alice: slipway.Client, bob: slipway.Client, project: ProjectOut
) -> None:
    made = alice.invitations.create("bob@example.org", role="viewer", project=project.slug)
    assert [(i.id, i.state) for i in alice.invitations.list(project=project.slug)] == [
        (made.id, "open")
    ]
    accepted = bob.invitations.accept(invitation_token(made.link))
    assert (accepted.project, accepted.role) == (project.slug, Role.VIEWER)
    with pytest.raises(errors.Forbidden):
        bob.projects.edit(project.slug, name="Mine now")
    bob_id = bob.whoami().user.id
    changed = alice.members.set_role(bob_id, Role.MAINTAINER, project=project.slug)
    assert changed.role == Role.MAINTAINER
    assert bob.projects.edit(project.slug, name="Ours").name == "Ours"
    alice.members.remove(bob_id, project=project.slug)
    with pytest.raises(errors.NotFound):
        bob.projects.get(project.slug)
    emails = [member.user.email for member in alice.members.list(project=project.slug)]
    assert emails == ["alice@example.org"]


def test_a_withdrawn_invitation_cannot_be_accepted(
    alice: slipway.Client, bob: slipway.Client, project: ProjectOut
) -> None:
    made = alice.invitations.create("bob@example.org", project=project.slug)
    alice.invitations.withdraw(made.id, project=project.slug)
    with pytest.raises(errors.NotFound):
        bob.invitations.accept(invitation_token(made.link))


def test_the_last_owner_stays(alice: slipway.Client, project: ProjectOut) -> None:
    me = alice.whoami().user.id
    with pytest.raises(errors.Conflict):
        alice.members.remove(me, project=project.slug)
    with pytest.raises(errors.Conflict):
        alice.members.set_role(me, "viewer", project=project.slug)


def test_a_team_brings_its_people_into_its_projects(
    alice: slipway.Client, bob: slipway.Client
) -> None:
    team = alice.teams.create(f"Team {secrets.token_hex(4)}")
    assert alice.teams.edit(team.slug, name="Renamed").name == "Renamed"
    assert team.slug in [item.slug for item in alice.teams.list()]
    made = alice.invitations.create("bob@example.org", team=team.slug)
    assert bob.invitations.accept(invitation_token(made.link)).team == team.slug
    project = alice.projects.create(f"Shared {secrets.token_hex(4)}", team=team.slug)
    assert bob.projects.get(project.slug).team == team.slug
    sources = {m.user.email: m.source for m in alice.members.list(project=project.slug)}
    assert sources["bob@example.org"] == "team"


def test_a_token_is_narrow_and_ends_when_it_is_revoked(
    portal: LivePortal, alice: slipway.Client, project: ProjectOut
) -> None:
    made = alice.tokens.create("narrow", [Scope.PROJECTS_READ], expires_in_days=1)
    with slipway.Client(portal.url, made.token) as narrow:
        assert narrow.projects.get(project.slug).slug == project.slug
        with pytest.raises(errors.Forbidden) as caught:
            narrow.projects.create("No")
        assert caught.value.next_step
        alice.tokens.revoke(made.id)
        with pytest.raises(errors.Unauthenticated):
            narrow.whoami()
    listed = {token.id: token for token in alice.tokens.list()}
    assert listed[made.id].revoked_at is not None


def test_a_secret_is_written_listed_and_deleted(alice: slipway.Client, project: ProjectOut) -> None:
    written = alice.secrets.set("HF_TOKEN", "hunter2\n-----\n", project=project.slug)
    assert (written.name, written.updated_by) == ("HF_TOKEN", "alice@example.org")
    assert "hunter2" not in repr(list(alice.secrets.list(project=project.slug)))
    alice.secrets.delete("HF_TOKEN", project=project.slug)
    assert list(alice.secrets.list(project=project.slug)) == []
    with pytest.raises(errors.NotFound):
        alice.secrets.delete("HF_TOKEN", project=project.slug)


def test_the_audit_log_is_filtered(alice: slipway.Client, project: ProjectOut) -> None:
    alice.projects.edit(project.slug, name="Another name")
    events = list(alice.audit.list(project=project.slug))
    assert {"project.create"} <= {event.verb for event in events}
    created = list(alice.audit.list(project=project.slug, verb="project.create"))
    assert [event.verb for event in created] == ["project.create"]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert list(alice.audit.list(project=project.slug, since=later)) == []
    assert len(list(alice.audit.list(project=project.slug, until=later))) == len(events)
    with pytest.raises(errors.InvalidInput):
        alice.audit.list(since=datetime(2026, 1, 1))  # noqa: DTZ001  (what it refuses)


def test_the_audit_log_is_exported_in_both_forms(
    alice: slipway.Client, project: ProjectOut
) -> None:
    since = project.created_at
    with alice.audit.export(format="csv", since=since) as export:
        rows = list(csv.DictReader(io.StringIO(b"".join(export).decode())))
    with alice.audit.export(format="jsonl", since=since) as export:
        lines = [json.loads(line) for line in b"".join(export).splitlines()]
    listed = [event.id for event in alice.audit.list(since=since)]
    assert [row["id"] for row in rows] == [line["id"] for line in lines] == listed != []


def test_only_an_administrator_sees_everybody(alice: slipway.Client, root: slipway.Client) -> None:
    with pytest.raises(errors.Forbidden):
        list(alice.users.list())
    charlie = next(iter(root.users.list(search="charlie")))
    assert root.users.edit(charlie.id, is_active=False).is_active is False
    assert root.users.edit(charlie.id, is_active=True).is_active is True


def test_a_wrong_token_and_a_wrong_field_are_explained(
    portal: LivePortal, alice: slipway.Client
) -> None:
    with (
        slipway.Client(portal.url, "slp_" + "x" * 40) as stranger,
        pytest.raises(errors.Unauthenticated) as caught,
    ):
        stranger.whoami()
    assert caught.value.next_step
    with pytest.raises(errors.InvalidInput) as invalid:
        alice.audit.list(verb="x\u202ey").page()
    assert invalid.value.errors
    assert "U+202E" in str(invalid.value)


def test_a_slug_in_use_is_a_conflict_or_says_so(alice: slipway.Client, project: ProjectOut) -> None:
    with pytest.raises((errors.Conflict, errors.InvalidInput)) as caught:
        alice.projects.create("Again", slug=project.slug)
    assert caught.value.field == "slug"
