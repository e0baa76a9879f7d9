"""The audit log: append-only, readable by those it concerns, safe to open in a spreadsheet."""

import csv
import io
from datetime import timedelta
from typing import Any

import orjson
import pytest
from django.db import DatabaseError, connection, transaction

from portal.accounts.models import AuditEvent
from portal.core import clock
from tests.personas import Api, Personas, json_of

pytestmark = pytest.mark.postgres


def test_the_log_cannot_be_changed_or_deleted_through_the_models(people: Personas) -> None:
    event = AuditEvent.objects.latest("pk")
    event.verb = "nothing.happened"
    for attempt in (
        event.save,
        event.delete,
        AuditEvent.objects.all().delete,
        AuditEvent.objects.filter(pk=event.pk).delete,
    ):
        with pytest.raises(TypeError, match="append-only"):
            attempt()
    with pytest.raises(TypeError, match="append-only"):
        AuditEvent.objects.update(verb="x.y")
    with pytest.raises((TypeError, DatabaseError)), transaction.atomic():
        AuditEvent.objects.bulk_update([event], ["verb"])


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE accounts_auditevent SET verb = 'x.y'",
        "DELETE FROM accounts_auditevent",
        "UPDATE accounts_auditevent SET after = NULL WHERE 1 = 1",
    ],
)
def test_the_database_itself_refuses_to_change_or_delete_events(
    people: Personas, statement: str
) -> None:
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert AuditEvent.objects.exists()


def test_an_event_says_who_what_from_where_and_the_change(people: Personas) -> None:
    alice = Api.of(people.alice)
    alice.patch("projects/vision", {"description": "Seeing"})
    [event] = json_of(alice.get("audit?verb=project.change"))["items"]
    assert event["actor"] == "alice@example.org"
    assert event["actor_id"] == people.alice.pk
    assert event["token_id"].startswith("tok_")
    assert (event["project"], event["target_kind"]) == ("vision", "project")
    assert event["before"] == {"description": ""}
    assert event["after"] == {"description": "Seeing"}


def test_an_event_outlives_what_it_speaks_of(people: Personas) -> None:
    alice = Api.of(people.alice)
    alice.put("projects/vision/secrets/GONE", {"value": "x"})
    alice.delete("projects/vision/secrets/GONE")
    items = json_of(alice.get("projects/vision/audit?verb=secret."))["items"]
    assert [item["verb"] for item in items] == ["secret.delete", "secret.create"]
    assert {item["target_label"] for item in items} == {"GONE"}


def test_people_read_what_they_did_and_what_they_maintain(people: Personas) -> None:
    Api.of(people.alice).patch("projects/vision", {"description": "A"})
    Api.of(people.charlie).patch("projects/other", {"description": "C"})

    def seen_by(name: str) -> set[str]:
        items = json_of(Api.of(getattr(people, name)).get("audit?verb=project.change"))["items"]
        return {item["target_label"] for item in items}

    assert seen_by("alice") == seen_by("mia") == {"vision"}
    assert seen_by("bob") == seen_by("vera") == set()
    assert seen_by("charlie") == {"other"}
    assert seen_by("root") == {"vision", "other"}


def test_the_log_is_filtered_by_who_what_which_and_when(people: Personas) -> None:
    alice, root = Api.of(people.alice), Api.of(people.root)
    start = clock.now()
    alice.patch("projects/vision", {"description": "1"})
    with clock.frozen(start + timedelta(hours=2)):
        alice.patch("projects/vision", {"description": "2"})
    between = (start + timedelta(hours=1)).isoformat().replace("+", "%2B")

    def entries(query: str) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = json_of(root.get(f"audit?{query}"))["items"]
        return items

    assert len(entries(f"verb=project.change&since={between}")) == 1
    assert entries(f"verb=project.change&since={between}")[0]["after"] == {"description": "2"}
    assert len(entries(f"verb=project.change&until={between}")) == 1
    assert len(entries(f"actor={people.alice.pk}&verb=project.")) == 2
    assert len(entries("actor=alice@example.org&verb=project.change")) == 2
    assert len(entries(f"target_id={people.vision.pk}")) == 3
    assert entries("actor=charlie@example.org&verb=project.change") == []
    # Offsets and years beyond what a database knows are moments, too.
    assert entries("verb=project.change&until=1255-06-04T06:22:32%2B19:09") == []
    assert entries("verb=project.change&until=0001-01-01T00:00:00%2B19:09") == []
    assert len(entries("verb=project.change&since=1255-06-04T06:22:32-19:09")) == 2


def _exported(api: Api, query: str = "") -> str:
    answer: Any = api.get(f"audit/export{query}")
    assert answer.status_code == 200
    assert "attachment" in answer.headers["Content-Disposition"]
    return b"".join(answer.streaming_content).decode()


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_the_export_is_a_formula(people: Personas, start: str) -> None:
    name = f"{start}HYPERLINK(1)".strip() or "x"
    alice = Api.of(people.alice)
    alice.post("tokens", {"name": name, "scopes": ["projects:read"]})
    rows = list(csv.reader(io.StringIO(_exported(alice))))
    assert len(rows) > 2
    assert {len(row) for row in rows} == {len(rows[0])}
    dangerous = [cell for row in rows for cell in row if cell[:1] in "=+-@\t\r" and cell]
    assert not dangerous


def test_the_export_is_complete_newest_first_in_both_forms(people: Personas) -> None:
    root = Api.of(people.root)
    Api.of(people.alice).patch("projects/vision", {"description": 'a, "b"\nc'})
    rows = list(csv.DictReader(io.StringIO(_exported(root))))
    lines = [orjson.loads(line) for line in _exported(root, "?format=jsonl").splitlines()]
    stored = list(AuditEvent.objects.order_by("-pk").values_list("pk", flat=True))
    assert [row["id"] for row in rows] == [line["id"] for line in lines] == stored
    assert orjson.loads(rows[0]["after"]) == lines[0]["after"] == {"description": 'a, "b"\nc'}


def test_the_export_holds_no_more_than_its_reader_may_see(people: Personas) -> None:
    assert "vision" not in _exported(Api.of(people.charlie))
    assert "vision" in _exported(Api.of(people.mia))
