"""Warm starts: sweeps that learn from earlier sweeps and runs of the project."""

from typing import Any

import pytest

from portal.experiments.services.job_runs import finish_orphaned_runs
from portal.sweeps.histories import history_of
from portal.sweeps.models import PriorTrial, Sweep
from portal.sweeps.services.warm_starts import value_in
from slipway.schemas.sweeps import ParameterSpace
from tests.personas import Api, Personas, json_of
from tests.portal.sweeps.trials import (
    LAYERS,
    SWEEPS,
    advance,
    end_trials,
    shown,
    start_sweep,
    sweep_body,
)
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import text_of
from tests.portal.workloads.machines import Machine

GRID = {"layers": LAYERS}


def _accuracy(values: dict[str, Any]) -> dict[str, float]:
    return {"accuracy": int(values["layers"]) / 10}


def _earlier(bob: Api, machine: Machine) -> str:
    """Run a grid of three trials. Returns its id."""
    sweep_id = start_sweep(
        bob, parameters=GRID, algorithm="grid", parallel=3, job={"params": {"width": "16"}}
    )
    advance()
    assert end_trials(bob, sweep_id, machine, _accuracy) == 3
    advance()
    finish_orphaned_runs()
    return sweep_id


def test_a_sweep_learns_from_an_earlier_one_and_says_what_it_leaves_out(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    earlier = _earlier(bob, machine)
    narrower = {"layers": {"type": "int", "low": 1, "high": 4}}
    changes = {"parameters": narrower, "algorithm": "tpe", "warm_start": [earlier]}
    note = "Learns from 2 earlier trials; 1 left out: 1 with layers outside its range."
    quote = json_of(bob.post(f"{SWEEPS}/quote", sweep_body(**changes)))
    assert quote["warm_start_note"] == note
    sweep_id = start_sweep(bob, **changes)
    sweep = shown(bob, sweep_id)
    assert (sweep["warm_start"], sweep["warm_start_note"]) == ([earlier], note)
    history = history_of(Sweep.objects.get(pk=sweep_id))
    assert [(trial.number, trial.values, trial.value) for trial in history] == [
        (-2, {"layers": 2}, 0.2),
        (-1, {"layers": 4}, 0.4),
    ]
    assert note in text_of(browse(people.vera).get(f"/p/vision/sweeps/{sweep_id}"))
    advance()
    assert shown(bob, sweep_id)["running"] == 2
    assert sweep["best"] is None  # an earlier trial is none of this sweep


def test_a_filter_of_runs_is_a_source(bob: Api, machine: Machine) -> None:
    earlier = _earlier(bob, machine)
    sources = ["metrics.accuracy > 0.3", earlier]
    sweep_id = start_sweep(bob, parameters=GRID, algorithm="tpe", warm_start=sources)
    values = PriorTrial.objects.filter(sweep=sweep_id).values_list("values", flat=True)
    assert sorted(each["layers"] for each in values) == ["2", "4", "8"]  # each run once
    assert shown(bob, sweep_id)["warm_start_note"] == "Learns from 3 earlier trials."


def test_trials_beyond_the_bound_are_said(
    bob: Api, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [_earlier(bob, machine), _earlier(bob, machine)]
    monkeypatch.setattr("portal.sweeps.services.warm_starts.MOST_PRIOR", 2)
    sweep_id = start_sweep(bob, parameters=GRID, algorithm="tpe", warm_start=sources)
    note = "Learns from 2 earlier trials; 2 left out: 2 beyond the first 2."
    assert shown(bob, sweep_id)["warm_start_note"] == note


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"warm_start": ["swp_01ARZ3NDEKTSV4RRFFQ69G5FAV"]}, "There is no sweep swp_01ARZ3"),
        ({"warm_start": ["metrics.accuracy >"]}, "filter of the warm start cannot be read"),
        ({"warm_start": ["metrics.accuracy > 5"]}, "no finished runs"),
        ({"warm_start": ["metrics.accuracy > 0"], "algorithm": "random"}, "learns nothing"),
        (
            {"warm_start": ["metrics.accuracy > 0"], "metric": {"name": "loss", "goal": "min"}},
            "3 left out: 3 without a value of loss",
        ),
        (
            {
                "warm_start": ["metrics.accuracy > 0"],
                "parameters": {"lr": {"type": "float", "low": 0, "high": 1}},
            },
            "3 without the parameter lr",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(
    bob: Api, machine: Machine, changes: dict[str, Any], words: str
) -> None:
    _earlier(bob, machine)
    body = sweep_body(**({"parameters": GRID, "algorithm": "tpe"} | changes))
    answer = bob.post(SWEEPS, body)
    assert answer.status_code == 422
    assert words in str(json_of(answer))


def test_a_sweep_of_another_project_does_not_exist(
    bob: Api, people: Personas, machine: Machine
) -> None:
    earlier = _earlier(bob, machine)
    Sweep.objects.filter(pk=earlier).update(project=people.other)
    body = sweep_body(parameters=GRID, algorithm="tpe", warm_start=[earlier])
    answer = json_of(bob.post(SWEEPS, body))
    assert (answer["field"], f"no sweep {earlier}" in answer["detail"]) == ("warm_start", True)


def test_values_in_spaces() -> None:
    real = ParameterSpace(type="float", low=0, high=1, step=0.25)
    whole = ParameterSpace(type="int", low=2, high=8, step=2)
    choice = ParameterSpace(type="choice", choices=["2", "4"])
    assert [value_in(real, text) for text in ("0.5", "0.3", "nan", "2")] == [0.5, None, None, None]
    assert [value_in(whole, text) for text in ("4", "4.0", "5", "x")] == [4, 4, None, None]
    assert [value_in(choice, text) for text in ("2", "2.0")] == ["2", None]
