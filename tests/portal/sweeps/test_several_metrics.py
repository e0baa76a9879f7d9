"""Sweeps with several metrics and with constraints: front, feasibility, what cannot be combined."""

import html
import json
import re
from typing import Any

import pytest

from portal.sweeps.factories import sampler
from portal.sweeps.fronts import front
from portal.sweeps.ports import PastTrial, SuggestionInput
from slipway.schemas.sweeps import ParameterSpace
from tests.personas import Api, Personas, json_of
from tests.portal.sweeps.trials import (
    LR,
    SWEEPS,
    advance,
    end_trials,
    shown,
    start_sweep,
    sweep_body,
    trials_of,
)
from tests.portal.training.jobs import take_code
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import Machine

TWO = {"other_metrics": [{"name": "latency", "goal": "min"}]}
BOUND = {"metric": "size_mb", "op": "<=", "bound": 20}
GRID = {"layers": {"type": "choice", "choices": ["2", "4", "8"]}}
# A larger network is better, slower and larger, but the largest one is no better.
MEASURED = {
    "2": {"accuracy": 0.7, "latency": 1.0, "size_mb": 5.0},
    "4": {"accuracy": 0.9, "latency": 2.0, "size_mb": 10.0},
    "8": {"accuracy": 0.9, "latency": 4.0, "size_mb": 25.0},
}


def _run(bob: Api, machine: Machine, **changes: Any) -> str:
    """Start a grid over the size of a network and let its trials end. Returns the id."""
    sweep_id = start_sweep(bob, parameters=GRID, algorithm="grid", parallel=3, **changes)
    advance()
    assert end_trials(bob, sweep_id, machine, lambda values: MEASURED[values["layers"]]) == 3
    advance()
    return sweep_id


def test_the_front_has_the_trials_that_no_other_beats_in_all_metrics(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    sweep_id = _run(bob, machine, **TWO)
    sweep = shown(bob, sweep_id)
    assert (sweep["state"], sweep["best"]) == ("finished", None)
    assert sweep["other_metrics"] == TWO["other_metrics"]
    answer = json_of(bob.get(f"{SWEEPS}/{sweep_id}/front"))
    assert [metric["name"] for metric in answer["metrics"]] == ["accuracy", "latency"]
    assert [(trial["value"], trial["other_values"]) for trial in answer["trials"]] == [
        (0.9, [2.0]),
        (0.7, [1.0]),
    ]
    assert answer["count"] == 2
    page = browse(people.vera).get(f"/p/vision/sweeps/{sweep_id}")
    match = re.search(r'data-front="([^"]*)"', html_of(page))
    assert match
    data = json.loads(html.unescape(match[1]))
    assert data["metrics"] == ["accuracy (max)", "latency (min)"]
    assert data["front"] == [[1, 0.9, 2.0], [0, 0.7, 1.0]]
    assert data["others"] == [[2, 0.9, 4.0]]
    text = text_of(page)
    assert "Pareto front" in text
    assert "Register best" not in text
    assert text_of(browse(people.vera).get("/p/vision/sweeps")).count("several metrics") == 1


def test_an_infeasible_trial_is_shown_as_such_and_never_the_best(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    sweep_id = _run(bob, machine, constraints=[BOUND], metric={"name": "latency", "goal": "max"})
    sweep = shown(bob, sweep_id)
    assert (sweep["complete"], sweep["infeasible"]) == (3, 1)
    assert sweep["best"]["parameters"] == {"layers": "4"}
    largest = trials_of(bob, sweep_id)[2]
    assert (largest["is_feasible"], largest["constraint_values"]) == (False, [25.0])
    assert largest["explanation"] == "Infeasible: size_mb is 25, not <= 20."
    text = text_of(browse(people.vera).get(f"/p/vision/sweeps/{sweep_id}"))
    assert "size_mb <= 20" in text
    assert "Infeasible: size_mb is 25" in text
    front_ids = [t["number"] for t in json_of(bob.get(f"{SWEEPS}/{sweep_id}/front"))["trials"]]
    assert front_ids == [1]


def test_a_metric_of_a_constraint_that_is_never_logged_ends_the_sweep(
    bob: Api, machine: Machine
) -> None:
    sweep_id = start_sweep(bob, trials=9, parallel=1, constraints=[BOUND])
    advance()
    end_trials(bob, sweep_id, machine, lambda _: {"accuracy": 0.5})
    advance()
    advance()
    sweep = shown(bob, sweep_id)
    assert (sweep["state"], sweep["started"]) == ("failed", 1)
    assert "logged no metric size_mb. It logged accuracy." in sweep["explanation"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (TWO | {"scheduler": "asha"}, "compares trials by one metric"),
        (TWO | {"algorithm": "cma-es", "parameters": {"a": LR, "b": LR}}, "use nsga-ii"),
        ({"other_metrics": [{"name": "accuracy", "goal": "min"}]}, "named twice"),
        ({"constraints": [BOUND | {"op": "=="}]}, "constraints"),
    ],
)
def test_what_does_not_go_together_is_refused(
    bob: Api, changes: dict[str, Any], words: str
) -> None:
    take_code(bob)
    answer = bob.post(SWEEPS, sweep_body(**changes))
    assert answer.status_code == 422
    assert words in str(json_of(answer))


def test_the_form_reads_metrics_and_constraints_from_lines(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    client, digest = browse(people.bob), take_code(bob)
    form = {
        "script": "train.py",
        "snapshot": digest,
        "params": "lr=uniform(0,1)",
        "tier": "small",
        "nodes": "1",
        "procs": "1",
        "max_attempts": "3",
        "priority": "0",
        "keep": "*",
        "metric": "accuracy",
        "goal": "max",
        "algorithm": "nsga-ii",
        "trials": "4",
        "parallel": "2",
        "retries": "0",
        "seed": "0",
        "scheduler": "none",
        "min_values": "1",
        "eta": "3",
    }
    bad = client.post("/p/vision/sweeps/new", form | {"other_metrics": "latency"})
    assert (bad.status_code, "latency has no goal" in text_of(bad)) == (422, True)
    bad = client.post("/p/vision/sweeps/new", form | {"constraints": "size_mb"})
    assert (bad.status_code, "is no bound of a metric" in text_of(bad)) == (422, True)
    lines = {"other_metrics": "latency:min\n", "constraints": "size_mb<=20\nrecall >= 0.5"}
    client.post("/p/vision/sweeps/new", form | lines)
    (sweep,) = json_of(bob.get(SWEEPS))["items"]
    assert sweep["other_metrics"] == TWO["other_metrics"]
    assert [bound["metric"] for bound in sweep["constraints"]] == ["size_mb", "recall"]


def test_fronts_of_points() -> None:
    points = [(1.0, 5.0), (2.0, 4.0), (2.0, 4.0), (0.5, 5.0), (2.0, 3.0)]
    assert front(points, ["max", "max"]) == [1, 2, 0]
    assert front(points, ["min", "min"]) == [3, 4]
    assert front([(1.0,), (3.0,), (2.0,)], ["max"]) == [1]
    assert front([], ["max"]) == []


@pytest.mark.parametrize("algorithm", ["nsga-ii", "tpe-multivariate"])
def test_algorithms_approach_the_front_and_what_is_feasible(algorithm: str) -> None:
    space = ParameterSpace(type="float", low=0, high=10)
    history: list[PastTrial] = []
    while len(history) < 80:
        search = SuggestionInput(algorithm, {"x": space, "y": space}, "min", 3, [*history], ["min"])
        first = len(history)
        suggested = sampler(algorithm).suggest(search, first=first, count=4)
        if first == 40:
            again = sampler(algorithm).suggest(search, first=first, count=4)
            assert suggested == again  # a crash loses nothing
        for values in suggested:
            x, away = float(values["x"]), (float(values["y"]) - 5) ** 2
            others, violations = [(x - 2) ** 2 + away], [1.0 - x]
            trial = PastTrial(len(history), values, x**2 + away, False, None, others, violations)
            history.append(trial)
    # On the front x is from 0 to 2, of which 1 to 2 is feasible, and y is 5.
    near = [
        0.8 <= float(trial.values["x"]) <= 2.5 and 3 <= float(trial.values["y"]) <= 7
        for trial in history[-20:]
    ]
    assert sum(near) >= 6  # one at random
