"""Projects through the REST API."""

import pytest

from portal.accounts.models import AuditEvent
from tests.personas import Api, Personas, json_of

pytestmark = pytest.mark.postgres


def test_a_person_creates_a_project_and_owns_it(people: Personas) -> None:
    answer = Api.of(people.bob).post("projects", {"name": "Churn model"})
    assert answer.status_code == 201
    assert json_of(answer)["slug"] == "churn-model"
    assert json_of(answer)["role"] == "owner"


def test_another_tenants_project_answers_like_one_that_does_not_exist(people: Personas) -> None:
    charlie = Api.of(people.charlie)
    foreign, missing = charlie.get("projects/vision"), charlie.get("projects/none-such")
    assert foreign.status_code == missing.status_code == 404
    same = [{**json_of(answer), "request_id": ""} for answer in (foreign, missing)]
    assert same[0] == same[1]


def test_the_same_key_creates_one_project(people: Personas) -> None:
    bob = Api.of(people.bob)
    first = bob.post("projects", {"name": "Twice"}, key="k-1")
    second = bob.post("projects", {"name": "Twice"}, key="k-1")
    assert json_of(first)["id"] == json_of(second)["id"]
    assert second.headers["Idempotent-Replayed"] == "true"
    assert len(json_of(bob.get("projects?q=Twice"))["items"]) == 1


def test_a_readme_is_saved_and_two_editors_do_not_overwrite_each_other(people: Personas) -> None:
    bob, alice = Api.of(people.bob), Api.of(people.alice)
    path = "projects/vision/readme"
    assert json_of(alice.get(path)) == {
        "text": "", "version": 0, "saved_at": None, "saved_by": None
    }  # fmt: skip
    first = json_of(bob.put(path, {"text": "# Vision\r\nfirst", "version": 0}))
    assert (first["text"], first["version"]) == ("# Vision\nfirst", 1)
    assert first["saved_by"]["email"] == people.bob.email
    refused = alice.put(path, {"text": "mine", "version": 0})
    assert refused.status_code == 409
    problem = json_of(refused)
    assert problem["code"] == "readme_changed"
    assert problem["field"] == "version"
    assert "Bob saved version 1 at " in problem["detail"]
    assert json_of(alice.put(path, {"text": "both", "version": 1}))["version"] == 2
    assert json_of(bob.put(path, {"text": "x", "version": 7}))["code"] == "readme_changed"
    event = AuditEvent.objects.filter(verb="project.readme").latest("pk")
    assert (event.actor, event.after) == (people.alice.email, {"version": 2, "characters": 4})


def test_a_readme_has_a_bound_and_readers_cannot_save_it(people: Personas) -> None:
    alice = Api.of(people.alice)
    path = "projects/vision/readme"
    long = alice.put(path, {"text": "a" * 64_001, "version": 0})
    assert long.status_code == 422
    assert "64000" in json_of(long)["detail"].replace(",", "")
    assert Api.of(people.vera).put(path, {"text": "x", "version": 0}).status_code == 403
    assert Api.of(people.charlie).get(path).status_code == 404
