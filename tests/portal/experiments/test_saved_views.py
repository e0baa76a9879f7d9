"""Saved views of runs through the API. Their pages: tests/portal/web/test_experiments.py."""

from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.experiments.models import SavedView
from tests.matrix.world import MISSING_ULID
from tests.personas import Api, Personas, json_of
from tests.portal.experiments.world import make_experiment

VIEWS = "projects/vision/views"


def test_views_are_saved_replaced_listed_and_deleted(people: Personas) -> None:
    bob, vera = Api.of(people.bob), Api.of(people.vera)
    digits = make_experiment(people.vision, name="digits")
    body = {"name": "Best", "query": "?q=first&cursor=x&smoothing=0.5", "experiment": digits.pk}
    saved = bob.post(VIEWS, body)
    assert saved.status_code == 201
    view = json_of(saved)
    # The page of a list belongs to one visit, and is not part of a view.
    assert view["query"] == "q=first&smoothing=0.5"
    assert view["saved_by"]["email"] == "bob@example.org"
    assert view["link"].endswith(f"/p/vision/views/{view['id']}")
    again = json_of(bob.post(VIEWS, {"name": "Best", "query": "q=second"}))
    assert (again["id"], again["experiment"]) == (view["id"], None)
    assert json_of(vera.get(VIEWS)) == [again]
    assert vera.delete(f"{VIEWS}/{view['id']}").status_code == 403
    assert bob.delete(f"{VIEWS}/{view['id']}").status_code == 204
    assert not SavedView.objects.exists()


def test_a_query_that_no_address_holds_is_refused(people: Personas) -> None:
    body = {"name": "Long", "query": "q=" + "\N{SAILBOAT}" * 1_000}
    refused = json_of(Api.of(people.bob).post(VIEWS, body))
    assert (refused["status"], refused["field"]) == (422, "query")
    assert "The query has 9,002 characters as part of an address" in refused["detail"]
    assert not SavedView.objects.exists()


def test_views_of_other_projects_do_not_exist(people: Personas) -> None:
    charlie, bob = Api.of(people.charlie), Api.of(people.bob)
    foreign = make_experiment(people.other, name="foreign")
    refused = bob.post(VIEWS, {"name": "Best", "experiment": foreign.pk})
    assert refused.status_code == 404
    view = json_of(bob.post(VIEWS, {"name": "Best"}))
    other = f"projects/{people.other.slug}/views"
    assert charlie.delete(f"{other}/{view['id']}").status_code == 404
    assert json_of(charlie.get(other)) == []
    assert charlie.get(VIEWS).status_code == 404
    assert bob.post(VIEWS, {"name": ""}).status_code == 422


def test_a_private_view_exists_for_its_author_alone(people: Personas) -> None:
    bob, alice, vera = (Api.of(person) for person in (people.bob, people.alice, people.vera))
    private = json_of(bob.post(VIEWS, {"name": "Best", "query": "q=secret", "private": True}))
    shared = json_of(alice.post(VIEWS, {"name": "Best", "query": "q=first"}))
    assert (private["private"], shared["private"]) == (True, False)
    assert private["id"] != shared["id"]
    assert json_of(bob.get(VIEWS)) == [shared, private]
    assert json_of(alice.get(VIEWS)) == json_of(vera.get(VIEWS)) == [shared]
    # Others may use the name as well, and replace nothing of his.
    hers = json_of(alice.post(VIEWS, {"name": "Best", "query": "q=third", "private": True}))
    again = json_of(bob.post(VIEWS, {"name": "Best", "query": "q=fourth", "private": True}))
    assert again["id"] == private["id"] != hers["id"]
    assert "secret" not in str(json_of(alice.get("projects/vision/audit")))

    taken = bob.post(f"{VIEWS}/{private['id']}/share")
    assert (taken.status_code, json_of(taken)["code"]) == (409, "view_name_taken")
    assert alice.delete(f"{VIEWS}/{shared['id']}").status_code == 204
    assert json_of(bob.post(f"{VIEWS}/{private['id']}/share"))["private"] is False
    assert [view["id"] for view in json_of(vera.get(VIEWS))] == [private["id"]]
    # Sharing it once more changes nothing, whoever asks.
    assert alice.post(f"{VIEWS}/{private['id']}/share").status_code == 200
    assert alice.delete(f"{VIEWS}/{private['id']}").status_code == 204
    assert [view["id"] for view in json_of(alice.get(VIEWS))] == [hers["id"]]


def test_a_private_view_of_another_person_answers_like_a_missing_one(people: Personas) -> None:
    bob, alice = Api.of(people.bob), Api.of(people.alice)
    view = json_of(bob.post(VIEWS, {"name": "Best", "private": True}))["id"]
    alice.get(VIEWS)  # the use of her token is recorded once
    answers = []
    for view_id in (view, f"view_{MISSING_ULID}"):
        with CaptureQueriesContext(connection) as share:
            refused = alice.post(f"{VIEWS}/{view_id}/share")
        with CaptureQueriesContext(connection) as delete:
            refused_too = alice.delete(f"{VIEWS}/{view_id}")
        bodies = [json_of(answer) for answer in (refused, refused_too)]
        for body in bodies:
            body.pop("request_id", None)
        statements = [
            query["sql"].replace(view_id, "VIEW").split(" WHERE ")[0]
            for query in (*share.captured_queries, *delete.captured_queries)
            if "SAVEPOINT" not in query["sql"]
        ]
        codes = (refused.status_code, refused_too.status_code)
        answers.append((codes, str(bodies).replace(view_id, "VIEW"), statements))
    assert answers[0] == answers[1]
    assert answers[0][0] == (404, 404)
    assert SavedView.objects.get().is_private
