"""Saved views of runs through the API. Their pages: tests/portal/web/test_experiments.py."""

from portal.experiments.models import SavedView
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
