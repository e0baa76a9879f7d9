"""Projects through the REST API."""

import pytest

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
