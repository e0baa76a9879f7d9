"""The nouns of the command line against a real portal."""

import csv
import io
import json
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

import slipway
from tests.live import LivePortal
from tests.slipway.cli.conftest import Cli


@pytest.fixture
def project(alice: Cli) -> str:
    """The slug of a fresh project of Alice, which is in use."""
    slug = alice("project", "create", f"Churn {secrets.token_hex(4)}", "-q").out.strip()
    assert alice("project", "use", slug).code == 0
    return slug


def test_a_project_is_made_shown_edited_archived_and_restored(alice: Cli) -> None:
    name = f"Vision {secrets.token_hex(4)}"
    made = alice("project", "create", name, "--description", "Sees", "--json").document
    slug = made["slug"]
    assert dict(alice("project", "show", slug).rows)["Description"] == "Sees"
    edited = alice("project", "edit", slug, "--name", name + " 2", "--json").document
    assert (edited["name"], edited["description"]) == (name + " 2", "Sees")
    assert alice("project", "edit", slug, "--network", "platform", "--json").document == (
        edited | {"network": "platform"}
    )
    assert dict(alice("project", "show", slug).rows)["Network"] == "platform"
    assert alice("project", "archive", slug).code == 2, "nobody agreed"
    assert alice("project", "archive", slug, "--yes", "--json").document == {"archived": slug}
    assert slug not in alice("project", "list", "-q").out.split()
    assert slug in alice("project", "list", "-q", "--archived", "--search", name).out.split()
    assert alice("project", "restore", slug, "-q").out == f"{slug}\n"
    assert slug in alice("project", "list", "-q", "--search", name).out.split()


def test_a_list_is_a_table_ids_or_one_document(alice: Cli) -> None:
    word = secrets.token_hex(4)
    slugs = [
        alice("project", "create", f"{word} {number}", "-q").out.strip() for number in range(3)
    ]
    listed = ("project", "list", "--search", word)
    table = alice(*listed)
    assert table.rows[0] == ["SLUG", "NAME", "TEAM", "YOUR ROLE", "CREATED"]
    assert [row[0] for row in table.rows[1:]] == slugs[::-1]
    assert alice(*listed, "-q").out.split() == slugs[::-1]
    assert [item["slug"] for item in alice(*listed, "--json").document["items"]] == slugs[::-1]
    some = alice(*listed, "--limit", "2")
    assert len(some.rows) == 3
    assert "--cursor" in some.err
    cursor = alice(*listed, "--limit", "2", "--json").document["next_cursor"]
    assert alice(*listed, "--cursor", cursor, "-q").out.split() == slugs[:1]


def test_an_empty_list_says_what_fills_it(alice: Cli) -> None:
    ran = alice("project", "list", "--search", secrets.token_hex(8))
    assert ran.code == 0
    assert "No project was found" in ran.err
    assert alice("project", "list", "--search", secrets.token_hex(8), "-q").err == ""


def test_the_project_in_use_is_meant_when_none_is_named(alice: Cli, project: str) -> None:
    assert alice("project", "show", "-q").out == f"{project}\n"
    assert alice("project", "use").out == f"{project}\n"
    assert alice("project", "use", "--none").code == 0
    ran = alice("project", "show")
    assert ran.code == 2
    assert "slipway project use" in ran.err
    assert alice("project", "use", "no-such-project").code == 5


def test_the_environment_names_the_project_before_the_login(
    alice: Cli, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPWAY_PROJECT", "no-such-project")
    assert alice("project", "show").code == 5
    assert alice("project", "show", project).code == 0


def test_a_person_is_invited_accepts_is_promoted_and_removed(
    signed_in: Callable[[str], Cli], alice: Cli, project: str, portal: LivePortal
) -> None:
    invited = alice("project", "invite", "bob@example.org", "--role", "viewer")
    assert "bob@example.org is invited" in invited.err
    link = invited.out.strip()
    assert link.startswith(portal.url)
    assert alice("project", "invitations").rows[1][1:4] == ["bob@example.org", "viewer", "open"]
    bob = signed_in("bob")
    assert bob("invitation", "accept", link, "-q").out == f"{project}\n"
    assert bob("project", "edit", project, "--name", "Mine").code == 4
    alice = signed_in("alice")
    promoted = ("project", "member", "set", "BOB@example.org", "maintainer", "-p", project)
    assert alice(*promoted, "--json").document["role"] == "maintainer"
    rows = alice("project", "members", project).rows
    assert ["bob@example.org", "Bob", "maintainer", "project"] in [row[:4] for row in rows]
    removed = ("project", "member", "remove", "bob@example.org", "-p", project)
    assert alice(*removed).code == 2, "nobody agreed"
    assert alice(*removed, "--yes").code == 0
    missing = alice(*removed, "--yes")
    assert missing.code == 5
    assert "does not belong" in missing.err


def test_an_invitation_is_withdrawn(alice: Cli, project: str) -> None:
    made = alice("project", "invite", "new@example.org", "--days", "3", "--json").document
    withdrawn = alice("invitation", "withdraw", made["id"], "--yes", "--json").document
    assert withdrawn == {"withdrawn": made["id"]}
    assert alice("invitation", "accept", made["link"]).code == 5
    both = alice("invitation", "withdraw", "x", "-p", "a", "--team", "b", "--yes")
    assert both.code == 2


def test_nothing_is_sent_for_the_invitation_of_another_server(alice: Cli) -> None:
    ran = alice("invitation", "accept", "https://evil.test/invitations/" + "x" * 40)
    assert ran.code == 6
    assert "https://evil.test" in ran.err
    assert "Request id" not in ran.err


def test_a_team_is_made_renamed_and_shared(signed_in: Callable[[str], Cli], alice: Cli) -> None:
    slug = alice("team", "create", f"Team {secrets.token_hex(4)}", "-q").out.strip()
    assert alice("team", "edit", slug, "--name", "Renamed", "--json").document["name"] == "Renamed"
    assert dict(alice("team", "show", slug).rows)["Your role"] == "owner"
    assert slug in alice("team", "list", "-q").out.split()
    link = alice("team", "invite", slug, "bob@example.org").out.strip()
    assert alice("team", "invitations", slug).rows[1][1] == "bob@example.org"
    assert signed_in("bob")("invitation", "accept", link, "--json").document["team"] == slug
    alice = signed_in("alice")
    assert alice("team", "member", "set", slug, "bob@example.org", "owner", "-q").code == 0
    assert len(alice("team", "members", slug, "-q").out.split()) == 2
    assert alice("team", "member", "remove", slug, "bob@example.org", "--yes").code == 0
    assert len(alice("team", "members", slug, "-q").out.split()) == 1


def test_a_secret_is_read_from_standard_input_and_never_written(alice: Cli, project: str) -> None:
    value = "hunter2-" + secrets.token_hex(8)
    ran = alice("secret", "set", "HF_TOKEN", stdin=value + "\n")
    assert ran.code == 0
    assert f"HF_TOKEN is written to project {project}" in ran.err
    listed = alice("secret", "list", "--json")
    assert [item["name"] for item in listed.document["items"]] == ["HF_TOKEN"]
    assert value not in ran.out + ran.err + listed.out
    assert alice("secret", "set", "EMPTY", stdin="\n").code == 2
    assert alice("secret", "delete", "HF_TOKEN").code == 2, "nobody agreed"
    deleted = alice("secret", "delete", "HF_TOKEN", "--yes", "--json").document
    assert deleted == {"deleted": "HF_TOKEN", "project": project}
    assert alice("secret", "list", "-q").out == ""


def test_a_token_is_made_for_a_script_and_revoked(
    alice: Cli, project: str, portal: LivePortal
) -> None:
    made = alice("token", "create", "ci", "--scope", "projects:read", "-p", project, "--days", "1")
    token = made.out.strip()
    assert "shown only once" in made.err
    with slipway.Client(portal.url, token) as client:
        assert [item.slug for item in client.projects.list()] == [project]
    listed = alice("token", "list", "--json").document["items"]
    own_token = next(item for item in listed if item["project"] == project)
    assert alice("token", "revoke", own_token["id"], "--yes").code == 0
    rows = alice("token", "list").rows
    assert "revoked" in next(row for row in rows if row[0] == own_token["id"])
    assert alice("token", "create", "ci", "--scope", "everything").code == 2


def test_the_audit_log_tells_what_changed(alice: Cli, project: str) -> None:
    alice("project", "edit", project, "--name", "Another")
    listed = alice("audit", "list", "-p", project, "--since", "1h")
    assert listed.rows[0][:4] == ["AT", "ACTOR", "VERB", "TARGET"]
    assert "project.create" in listed.out
    assert '→ "Another"' in listed.out
    assert alice("audit", "list", "-p", project, "--until", "2020-01-01", "-q").out == ""
    wrong = alice("audit", "list", "--since", "yesterday")
    assert wrong.code == 2
    assert "7d" in wrong.err


def test_the_audit_log_is_exported_to_a_file(alice: Cli, project: str, tmp_path: Path) -> None:
    file = tmp_path / "audit.csv"
    document = alice("audit", "export", "-o", str(file), "--since", "1h", "--json").document
    assert document == {"path": str(file), "size_bytes": file.stat().st_size, "format": "csv"}
    verbs = {row["verb"] for row in csv.DictReader(io.StringIO(file.read_text()))}
    assert "project.create" in verbs
    assert alice("audit", "export", "-o", str(file)).code == 2, "it would replace the file"
    lines = ("audit", "export", "-o", str(file), "--format", "jsonl", "--yes", "-q")
    assert alice(*lines).out == f"{file}\n"
    assert {"verb", "actor"} <= set(json.loads(file.read_text().splitlines()[0]))
    assert [path.name for path in tmp_path.glob("audit*")] == ["audit.csv"]


def test_an_export_has_to_go_somewhere(alice: Cli, tmp_path: Path) -> None:
    assert alice("audit", "export", "--json").code == 2
    ran = alice("audit", "export", "-o", str(tmp_path / "none" / "audit.csv"))
    assert ran.code == 2
    assert "cannot be written" in ran.err
