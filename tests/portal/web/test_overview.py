"""The overview of a project: experiments, models, endpoints, jobs, spend, and what to do next."""

import math
import re
from datetime import timedelta

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from portal.core import clock
from portal.endpoints.models import Endpoint, TrafficMinute
from portal.spend.services.budgets import set_budget
from portal.web.projects.presenters import less_is_better, main_metric
from slipway.schemas.spend import BudgetIn
from tests.matrix.registered import make_model
from tests.matrix.serving import make_endpoint
from tests.personas import Personas
from tests.portal.experiments.world import make_experiment, make_run
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of

RESULTS = "/p/vision/overview/results"
SPEND = "/p/vision/overview/spend"
# Five experiments and five models, each with a fixed number of queries.
MOST_QUERIES = 60


def test_an_empty_project_offers_the_action_that_fills_each_section(
    people: Personas, browse: Browse
) -> None:
    bob, vera = browse(people.bob), browse(people.vera)
    page, results = html_of(bob.get("/p/vision")), html_of(bob.get(RESULTS))
    for title, url in (("No endpoints yet", "new-endpoint"), ("No jobs yet", "jobs/new")):
        assert title in page
        assert f'href="/p/vision/{url}"' in page
    for title, url in (("No experiments yet", "jobs/new"), ("No models yet", "register-model")):
        assert title in results
        assert f'href="/p/vision/{url}"' in results
    assert "No budget is set" in text_of(bob.get(SPEND))
    for page in (html_of(vera.get("/p/vision")), html_of(vera.get(RESULTS))):
        assert not re.search(r'href="/p/vision/(new-endpoint|jobs/new|register-model)"', page)


def test_experiments_show_their_last_run_and_the_best_one(people: Personas, browse: Browse) -> None:
    digits = make_experiment(people.vision)
    best = make_run(digits, "wide-net", metrics={"val_accuracy": 0.97, "loss": 0.2})
    last = make_run(digits, "deep-net", minute=1, metrics={"val_accuracy": 0.91, "loss": 0.1})
    make_run(make_experiment(people.other), "foreign", metrics={"val_accuracy": 0.99})
    one_class = make_experiment(people.vision, "one-class")
    make_run(one_class, "no-curve", metrics={"val_auc": math.nan})
    page = browse(people.vera).get(RESULTS)
    words = text_of(page)
    assert "val_auc" not in words
    assert "digits 2 runs" in words
    assert "deep-net finished 0.97 highest val_accuracy" in words
    assert f"/runs/{last.run_uuid}" in html_of(page)
    assert f"/runs/{best.run_uuid}" in html_of(page)


@pytest.mark.parametrize(
    ("names", "metric", "lower"),
    [
        (["loss", "val_loss", "lr"], "val_loss", True),
        (["train_accuracy", "test-accuracy", "a"], "test-accuracy", False),
        (["system/cpu", "epoch"], "epoch", False),
        (["system/cpu"], None, False),
        (["map", "mapped_rows"], "map", False),
    ],
)
def test_the_metric_of_an_experiment_is_chosen_by_its_name(
    names: list[str], metric: str | None, lower: bool
) -> None:
    assert main_metric(names) == metric
    assert less_is_better(metric or "") is lower


def test_models_endpoints_traffic_and_budget_are_shown(people: Personas, browse: Browse) -> None:
    vera = browse(people.vera)
    model = make_model(project=people.vision, by=people.alice)
    make_endpoint(owner=people.alice, project=people.vision)
    endpoint = Endpoint.objects.get(project=people.vision)
    minute = clock.now().replace(second=0, microsecond=0) - timedelta(minutes=1)
    for at, answered in ((minute, 7), (minute - timedelta(minutes=5), 90)):
        TrafficMinute.objects.create(endpoint=endpoint, at=at, answered=answered)
    set_budget(by=people.alice, spec=BudgetIn(project="vision", limit_nano_usd=10**12))
    results = text_of(vera.get(RESULTS))
    assert model["model"] in results
    assert "Version" in results
    page = html_of(vera.get("/p/vision"))
    assert f"/p/vision/endpoints/{endpoint.name}" in page
    assert "Requests per minute in the last hour: 7 at the end, 90 at most" in page
    assert "of $1,000.00 this month" in text_of(vera.get(SPEND))


def test_experiments_and_models_take_as_many_queries_for_thirty_as_for_six(
    people: Personas, browse: Browse
) -> None:
    counts = []
    for batch in (range(6), range(6, 30)):
        for number in batch:
            run = make_run(
                make_experiment(people.vision, f"experiment {number}"), metrics={"loss": 0.5}
            )
            make_run(run.experiment, "second", minute=number, metrics={"loss": 0.4})
        vera = browse(people.vera)
        vera.get(RESULTS)
        with (
            CaptureQueriesContext(connections["default"]) as ours,
            CaptureQueriesContext(connections["tracking"]) as theirs,
        ):
            assert vera.get(RESULTS).status_code == 200
        counts.append(len(ours) + len(theirs))
    assert counts[0] == counts[1]
    assert counts[1] <= MOST_QUERIES
