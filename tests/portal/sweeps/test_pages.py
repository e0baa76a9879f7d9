"""Pages of sweeps: start one, see how it does, change it."""

import html
import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.sweeps.models import Sweep
from tests.personas import Api, Personas
from tests.portal.sweeps.trials import advance, end_trials, start_sweep, trials_of
from tests.portal.training.jobs import take_code
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import Machine

SWEEPS = "/p/vision/sweeps"
MOST_QUERIES = 26


def accuracy(parameters: dict[str, Any]) -> dict[str, float]:
    """Return a metric that is best where the learning rate is highest."""
    return {"accuracy": parameters["lr"]}


def _form(**changes: str) -> dict[str, str]:
    return {
        "script": "train.py",
        "params": "lr=loguniform(1e-4,1e-1)\nlayers=choice(2,4,8)\nepochs=3",
        "tier": "small",
        "nodes": "1",
        "procs": "1",
        "max_attempts": "3",
        "priority": "0",
        "keep": "*",
        "metric": "accuracy",
        "goal": "max",
        "algorithm": "random",
        "trials": "4",
        "parallel": "2",
        "retries": "0",
        "seed": "0",
        "scheduler": "none",
        "min_values": "1",
        "eta": "3",
    } | changes


def _curve(client: Client, sweep_id: str) -> dict[str, Any]:
    match = re.search(r'data-curve="([^"]*)"', html_of(client.get(f"{SWEEPS}/{sweep_id}")))
    assert match
    curve: dict[str, Any] = json.loads(html.unescape(match[1]))
    return curve


def test_the_form_shows_the_price_and_starts_a_sweep(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    client, digest = browse(people.bob), take_code(bob)
    assert "Start your first sweep" in text_of(client.get(SWEEPS))
    assert "loguniform(1e-4,1e-1)" in html_of(client.get(f"{SWEEPS}/new"))
    price = text_of(client.post(f"{SWEEPS}/quote", _form(snapshot=digest, metric="")))
    assert "4 trials, 2 at once" in price
    assert "$7.20 an hour" in price
    answer = client.post(f"{SWEEPS}/new", _form(snapshot=digest))
    sweep = Sweep.objects.get()
    assert answer.headers["Location"] == f"{SWEEPS}/{sweep.pk}"
    assert set(sweep.parameters) == {"lr", "layers"}
    assert sweep.job_in.params == {"epochs": "3"}
    assert "No trial has started yet." in text_of(client.get(f"{SWEEPS}/{sweep.pk}"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"params": "lr=0.1"}, "No parameter has a range."),
        ({"params": "lr=loguniform(0,1)"}, "begins above 0"),
        ({"params": "lr=uniform(a,b)"}, "does not have two numbers"),
        ({"params": "lr=uniform(0,1)", "algorithm": "grid"}, "grid needs countable values"),
        ({"metric": ""}, "This field is required."),
        ({"trials": "0"}, "greater than or equal to 1"),
        ({"script": "missing.py"}, "missing.py"),
    ],
)
def test_a_form_that_makes_no_sense_is_refused(
    bob: Api,
    people: Personas,
    browse: Browse,
    machine: Machine,
    changes: dict[str, str],
    words: str,
) -> None:
    answer = browse(people.bob).post(f"{SWEEPS}/new", _form(snapshot=take_code(bob)) | changes)
    assert answer.status_code == 422
    assert words in text_of(answer)
    assert not Sweep.objects.exists()


def test_the_page_shows_trials_the_best_of_them_and_what_they_cost(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    sweep_id = start_sweep(bob)
    for _ in range(2):
        advance()
        end_trials(bob, sweep_id, machine, accuracy)
    advance()
    vera = browse(people.vera)
    page, text = (
        html_of(vera.get(f"{SWEEPS}/{sweep_id}")),
        text_of(vera.get(f"{SWEEPS}/{sweep_id}")),
    )
    trials = trials_of(bob, sweep_id)
    best = max(trials, key=lambda trial: trial["value"])
    assert "Trials ended 4 of 4" in text
    assert f"trial {best['number']}" in text
    assert all(f"/p/vision/jobs/{trial['job']}" in page for trial in trials)
    assert 'id="relations"' in page
    assert "Register best" not in text  # only for those who may
    assert "Register best" in text_of(browse(people.bob).get(f"{SWEEPS}/{sweep_id}"))
    curve = _curve(vera, sweep_id)
    assert curve["trials"] == [[trial["number"], trial["value"]] for trial in trials]
    assert curve["best"][-1] == [3, best["value"]]
    match = re.search(r'id="slices-data"[^>]*>([^<]*)<', page)
    assert match
    slices = json.loads(match[1])
    names = [parameter["name"] for parameter in slices["parameters"]]
    assert slices["trials"] == [
        [trial["number"], [trial["value"]], [trial["parameters"].get(name) for name in names]]
        for trial in trials
    ]
    assert "finished 4 of 4" in text_of(vera.get(SWEEPS))


def test_buttons_pause_resume_extend_and_stop(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    sweep_id = start_sweep(bob)
    client, page = browse(people.bob), f"{SWEEPS}/{sweep_id}"
    client.post(f"{page}/pause")
    assert "paused Paused by Bob." in text_of(client.get(page))
    client.post(f"{page}/resume")
    assert Sweep.objects.get().state == "running"
    client.post(f"{page}/extend", {"trials": "6"})
    assert Sweep.objects.get().trials == 6
    refused = client.post(f"{page}/extend", {"trials": "3"})
    assert refused.status_code == 422
    assert "trials is 3, but the sweep has 6 already." in text_of(refused)
    assert "cannot be resumed" in text_of(client.get(f"{page}/stop"))
    client.post(f"{page}/stop")
    assert Sweep.objects.get().state == "stopped"
    assert "Run more trials" not in text_of(client.get(page))


@pytest.mark.thorough
def test_pages_cost_as_many_queries_for_many_trials_as_for_few(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    vera = browse(people.vera)
    sweep_id = start_sweep(bob, trials=12)
    counts: list[list[int]] = []
    for rounds in (1, 5):
        for _ in range(rounds):
            advance()
            end_trials(bob, sweep_id, machine, accuracy)
        advance()
        start_sweep(bob, trials=1)
        counts.append([])
        for address in (SWEEPS, f"{SWEEPS}/{sweep_id}"):
            vera.get(address)
            with CaptureQueriesContext(connection) as queries:
                assert vera.get(address).status_code == 200
            counts[-1].append(len(queries))
    assert counts[0] == counts[1]
    assert max(counts[1]) <= MOST_QUERIES
