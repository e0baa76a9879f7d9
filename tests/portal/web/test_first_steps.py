"""First steps on Home: they follow what was really done, and can be hidden."""

import re
from datetime import timedelta

import pytest
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.accounts.models import ApiToken
from portal.core import clock
from portal.endpoints.models import Revision
from portal.spend.services.budgets import set_budget
from portal.web.home.first_steps import STEPS
from portal.web.models import FirstSteps
from slipway.schemas.spend import BudgetIn
from tests.matrix.desks import make_server
from tests.matrix.registered import make_model
from tests.matrix.serving import make_endpoint
from tests.personas import Personas, make_token, make_user
from tests.portal.experiments.world import make_experiment, make_run
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of


def _done(client: Client) -> tuple[int, str]:
    """Return how many steps Home shows as done, and the title of the next one."""
    page = client.get("/")
    shown = re.search(r"(\d) of 8 done.*?Next: ([A-Z][a-z ]+?)(?= [A-Z])", text_of(page))
    assert shown, "Home shows no first steps"
    assert html_of(page).count('<li class="is-done">') == int(shown[1])
    return int(shown[1]), shown[2]


def test_a_newcomer_begins_with_a_project_and_a_viewer_is_told_what_is_missing(
    people: Personas, browse: Browse
) -> None:
    newcomer = browse(make_user("newcomer"))
    assert _done(newcomer) == (0, "Create a project")
    assert 'href="/projects/new">New project' in html_of(newcomer.get("/"))
    assert "Needs a project in which you are a contributor" in text_of(browse(people.vera).get("/"))


def test_steps_are_done_by_what_the_person_has_done(people: Personas, browse: Browse) -> None:
    alice, bob = browse(people.alice), browse(people.bob)
    assert _done(alice) == (1, "Launch a notebook")
    assert 'href="/p/vision/notebooks/new">Launch a notebook' in html_of(alice.get("/"))
    make_run(make_experiment(people.vision), user_id="alice@example.org")
    set_budget(by=people.alice, spec=BudgetIn(project="vision", limit_nano_usd=10**12))
    assert _done(alice) == (3, "Launch a notebook")
    make_model(project=people.vision, by=people.alice)
    make_endpoint(owner=people.alice, project=people.vision)
    Revision.objects.filter(endpoint__project=people.vision).update(answered=3)
    make_token(people.alice)
    ApiToken.objects.filter(user=people.alice).update(last_used_at=clock.now() - timedelta(1))
    assert _done(alice)[0] >= 6
    # Predictions of a project count for its members, and nothing else that Alice did.
    assert _done(bob) == (2, "Launch a notebook")


def test_steps_that_were_seen_done_stay_done(people: Personas, browse: Browse) -> None:
    bob = browse(people.bob)
    ApiToken.objects.filter(user=people.bob).delete()
    make_token(people.bob)
    ApiToken.objects.filter(user=people.bob).update(last_used_at=clock.now())
    before = _done(bob)
    ApiToken.objects.filter(user=people.bob).delete()
    assert _done(bob) == before


def test_the_list_is_hidden_for_the_person_alone_and_shown_again(
    people: Personas, browse: Browse
) -> None:
    alice, bob = browse(people.alice), browse(people.bob)
    assert alice.post("/first-steps", {"hidden": "yes"}).headers["Location"] == "/"
    assert "of 8 done" not in text_of(alice.get("/"))
    assert "Show first steps" in text_of(alice.get("/"))
    assert _done(bob)
    alice.post("/first-steps", {"hidden": "no"})
    assert _done(alice)
    refused = alice.post("/first-steps", {"hidden": "perhaps"})
    assert refused.status_code == 422
    assert "hidden has to be yes or no" in text_of(refused)


@pytest.mark.parametrize("state", ["done", "hidden"])
def test_home_asks_once_about_people_who_need_no_list(
    people: Personas, browse: Browse, state: str
) -> None:
    make_server(owner=people.alice, project=people.vision)
    alice = browse(people.alice)
    alice.get("/")
    with_list = _queries(alice)
    keys = [step.key for step in STEPS]
    changes = {"hidden": True} if state == "hidden" else {"done": keys}
    FirstSteps.objects.filter(user=people.alice).update(**changes)
    assert _queries(alice) <= with_list - 2
    page = text_of(alice.get("/"))
    assert ("Show first steps" in page) is (state == "hidden")
    assert "of 8 done" not in page


def _queries(client: Client) -> int:
    with (
        CaptureQueriesContext(connections["default"]) as ours,
        CaptureQueriesContext(connections["tracking"]) as theirs,
    ):
        client.get("/")
    return len(ours) + len(theirs)
