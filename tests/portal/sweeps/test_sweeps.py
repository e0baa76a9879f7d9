"""Sweeps through the REST API: started, advanced, paused, extended and stopped."""

import math
import sys
from typing import Any

import pytest
from django.db import connection

from portal.accounts.models import Membership
from portal.sweeps.factories import sampler
from portal.sweeps.models import Sweep, Trial
from portal.sweeps.ports import PastTrial, SuggestionInput
from portal.sweeps.services.progress import advance_all
from portal.training.models import Job
from portal.workloads.models import Workload
from slipway.schemas.sweeps import ParameterSpace, ParameterValues
from tests.personas import Api, Personas, json_of
from tests.portal.sweeps.trials import (
    LAYERS,
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
from tests.portal.workloads.machines import Machine
from tests.turns import thorough_after


def accuracy(parameters: dict[str, Any]) -> dict[str, float]:
    """Return metrics that are best where the learning rate is highest."""
    return {"accuracy": parameters["lr"], "loss": 1.0}


@pytest.mark.postgres
def test_a_sweep_runs_its_trials_as_jobs_and_names_the_best(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob, job={"params": {"epochs": "3"}, "args": ["--quick"]})
    advance()
    first = trials_of(bob, sweep_id)
    assert [trial["number"] for trial in first] == [0, 1]
    job = json_of(bob.get(f"projects/vision/jobs/{first[0]['job']}"))
    assert job["workload"]["name"] == "digits"
    values = {name: str(value) for name, value in first[0]["parameters"].items()}
    assert job["params"] == {"epochs": "3", **values}
    assert job["args"] == ["--quick"]
    advance()
    assert len(trials_of(bob, sweep_id)) == 2  # no more than two at once
    assert end_trials(bob, sweep_id, machine, accuracy) == 2
    advance()
    assert shown(bob, sweep_id)["expected_nano_usd"] is not None
    assert end_trials(bob, sweep_id, machine, accuracy) == 2
    advance()
    sweep, trials = shown(bob, sweep_id), trials_of(bob, sweep_id)
    assert (sweep["state"], sweep["started"], sweep["complete"]) == ("finished", 4, 4)
    best = max(trials, key=lambda trial: trial["value"])
    assert sweep["best"] == {
        "number": best["number"],
        "value": best["parameters"]["lr"],
        "parameters": best["parameters"],
        "job": best["job"],
    }
    assert all(1e-4 <= trial["parameters"]["lr"] <= 1e-1 for trial in trials)
    assert {trial["parameters"]["layers"] for trial in trials} <= {"2", "4", "8"}
    costs = [json_of(bob.get(f"projects/vision/jobs/{trial['job']}")) for trial in trials]
    assert sweep["cost_nano_usd"] == sum(job["cost_nano_usd"] for job in costs)


@pytest.mark.postgres
def test_advancing_twice_starts_and_records_nothing_twice(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob)
    advance_all()
    advance_all()
    assert Job.objects.count() == len(trials_of(bob, sweep_id)) == 2
    stale = Sweep.objects.get(pk=sweep_id)
    advance()
    end_trials(bob, sweep_id, machine, accuracy)
    advance()
    advance()
    assert stale.started == 2
    assert [trial["number"] for trial in trials_of(bob, sweep_id)] == [0, 1, 2, 3]


@pytest.mark.postgres
def test_a_sweep_is_shown_whose_first_trial_ends_at_that_moment(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob)
    advance()
    (first, _) = Trial.objects.order_by("number")

    def end_before_durations(execute: Any, sql: str, *rest: Any) -> Any:
        if "AVG(" in sql:
            Trial.objects.filter(pk=first.pk).update(
                state="complete", value=0.5, ended_at=first.created_at
            )
        return execute(sql, *rest)

    with connection.execute_wrapper(end_before_durations):
        answer = bob.get(f"{SWEEPS}/{sweep_id}")
    assert (answer.status_code, json_of(answer)["expected_end"]) == (200, None)
    assert shown(bob, sweep_id)["expected_end"] is not None


@pytest.mark.parametrize(
    "algorithm",
    thorough_after(6, ["random", "qmc", "tpe", "tpe-multivariate", "grid", "cma-es", "gp"]),
)
def test_each_algorithm_keeps_to_the_space(bob: Api, machine: Machine, algorithm: str) -> None:
    parameters = {
        "lr": {"type": "float", "low": 0.0, "high": 1.0, "step": 0.25},
        "layers": {"type": "int", "low": 1, "high": 4},
        "optimizer": {"type": "choice", "choices": ["sgd", "adam"]},
        "momentum": {
            "type": "float",
            "low": 0.1,
            "high": 0.9,
            "step": 0.4,
            "when": {"optimizer": ["sgd"]},
        },
    }
    sweep_id = start_sweep(
        bob, parameters=parameters, algorithm=algorithm, trials=6, parallel=4, seed=7
    )
    for _ in range(2):
        advance()
        end_trials(bob, sweep_id, machine, accuracy)
    advance()
    trials = trials_of(bob, sweep_id)
    assert shown(bob, sweep_id)["state"] == "finished"
    assert len(trials) == 6
    for trial in trials:
        values = trial["parameters"]
        assert values["lr"] in (0.0, 0.25, 0.5, 0.75, 1.0)
        assert values["layers"] in (1, 2, 3, 4)
        assert ("momentum" in values) == (values["optimizer"] == "sgd")
    assert len({str(trial["parameters"]) for trial in trials}) > 1


@pytest.mark.parametrize("algorithm", thorough_after(1, ["cma-es", "gp"]))
def test_algorithms_that_learn_come_near_the_optimum(algorithm: str) -> None:
    parameters = {
        "x": ParameterSpace(type="float", low=-4, high=4),
        "y": ParameterSpace(type="float", low=0.001, high=1000, log=True),
    }

    def loss(values: ParameterValues) -> float:
        return (float(values["x"]) - 1) ** 2 + (math.log10(float(values["y"])) - 1) ** 2

    history: list[PastTrial] = []
    trials = {"cma-es": 90, "gp": 24}[algorithm]
    while len(history) < trials:
        search = SuggestionInput(algorithm, parameters, "min", 1, [*history])
        suggested = sampler(algorithm).suggest(search, first=len(history), count=3)
        again = sampler(algorithm).suggest(search, first=len(history), count=3)
        assert suggested == again  # a crash loses nothing
        history += [
            PastTrial(len(history) + index, values, loss(values), is_running=False)
            for index, values in enumerate(suggested)
        ]
    assert min(loss(trial.values) for trial in history[-6:]) < 0.05


@pytest.mark.parametrize(("algorithm", "package"), [("cma-es", "cmaes"), ("gp", "torch")])
def test_an_algorithm_that_is_not_installed_is_refused(
    bob: Api, machine: Machine, monkeypatch: pytest.MonkeyPatch, algorithm: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    take_code(bob)
    wide = {"a": LR, "b": LR}
    for path in (SWEEPS, f"{SWEEPS}/quote"):
        answer = bob.post(path, sweep_body(algorithm=algorithm, parameters=wide))
        assert (answer.status_code, json_of(answer)["field"]) == (422, "algorithm")
        assert f"needs {package}" in json_of(answer)["detail"]
        assert f"pip install {package}" in json_of(answer)["next_step"]


def test_cma_es_needs_two_ranges_of_numbers(bob: Api) -> None:
    answer = bob.post(SWEEPS, sweep_body(algorithm="cma-es"))
    assert answer.status_code == 422
    assert "at least two parameters" in str(json_of(answer))


def test_a_grid_tries_every_combination_once(bob: Api, machine: Machine) -> None:
    grid = {
        "a": {"type": "choice", "choices": ["x", "y"]},
        "b": {"type": "int", "low": 1, "high": 2},
    }
    sweep_id = start_sweep(bob, parameters=grid, algorithm="grid", trials=50, parallel=4)
    advance()
    assert shown(bob, sweep_id)["trials"] == 4
    pairs = [(t["parameters"]["a"], t["parameters"]["b"]) for t in trials_of(bob, sweep_id)]
    assert pairs == [("x", 1), ("x", 2), ("y", 1), ("y", 2)]
    answer = bob.post(f"{SWEEPS}/{sweep_id}/extend", {"trials": 5})
    assert answer.status_code == 422
    assert json_of(answer)["field"] == "trials"


def test_a_metric_that_is_never_logged_ends_the_sweep_after_its_first_trial(
    bob: Api, machine: Machine
) -> None:
    sweep_id = start_sweep(bob, trials=50, parallel=1)
    advance()
    end_trials(bob, sweep_id, machine, lambda _: {"acc": 0.5, "loss": 1.0})
    advance()
    advance()
    sweep = shown(bob, sweep_id)
    assert (sweep["state"], sweep["started"], sweep["failed"]) == ("failed", 1, 1)
    assert "logged no metric accuracy. It logged acc, loss." in sweep["explanation"]
    assert "mlflow.log_metric" in sweep["next_step"]


@pytest.mark.postgres
def test_a_failed_trial_is_submitted_again_and_counts_once(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob, trials=1, parallel=1, retries=1)
    advance()
    end_trials(bob, sweep_id, machine, accuracy, reason="exit")
    advance()
    (again,) = trials_of(bob, sweep_id)
    assert (again["number"], again["state"], again["attempt"]) == (0, "running", 2)
    assert Job.objects.count() == 2
    end_trials(bob, sweep_id, machine, accuracy)
    advance()
    sweep = shown(bob, sweep_id)
    assert (sweep["state"], sweep["complete"], sweep["failed"]) == ("finished", 1, 0)


def test_a_sweep_whose_first_trials_all_fail_ends(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob, trials=50, parallel=4)
    advance()
    end_trials(bob, sweep_id, machine, accuracy, reason="exit")
    advance()
    sweep = shown(bob, sweep_id)
    assert (sweep["state"], sweep["started"]) == ("failed", 4)
    assert sweep["explanation"].startswith("The first 3 trials failed.")


def test_a_paused_sweep_starts_nothing_until_it_is_resumed(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob)
    assert json_of(bob.post(f"{SWEEPS}/{sweep_id}/pause"))["state"] == "paused"
    assert json_of(bob.post(f"{SWEEPS}/{sweep_id}/pause"))["state"] == "paused"
    advance()
    assert trials_of(bob, sweep_id) == []
    assert json_of(bob.post(f"{SWEEPS}/{sweep_id}/resume"))["state"] == "running"
    advance()
    assert len(trials_of(bob, sweep_id)) == 2


@pytest.mark.postgres
def test_a_stopped_sweep_stops_its_jobs_and_stays_stopped(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob)
    advance_all()
    assert json_of(bob.post(f"{SWEEPS}/{sweep_id}/stop"))["state"] == "stopped"
    advance()
    advance()
    assert [trial["state"] for trial in trials_of(bob, sweep_id)] == ["stopped", "stopped"]
    assert set(Workload.objects.values_list("state", flat=True)) == {"stopped"}
    assert bob.post(f"{SWEEPS}/{sweep_id}/resume").status_code == 409
    assert bob.post(f"{SWEEPS}/{sweep_id}/extend", {"trials": 9}).status_code == 409


def test_a_finished_sweep_can_be_extended(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob, trials=1, parallel=1)
    advance()
    end_trials(bob, sweep_id, machine, accuracy)
    advance()
    assert shown(bob, sweep_id)["state"] == "finished"
    sweep = json_of(bob.post(f"{SWEEPS}/{sweep_id}/extend", {"trials": 2}))
    assert (sweep["state"], sweep["trials"], sweep["ended_at"]) == ("running", 2, None)
    advance()
    assert len(trials_of(bob, sweep_id)) == 2


def test_jobs_that_are_refused_pause_the_sweep_with_the_reason(
    bob: Api, people: Personas, machine: Machine
) -> None:
    sweep_id = start_sweep(bob)
    Membership.objects.filter(project=people.vision, user=people.bob).delete()
    advance()
    sweep = shown(Api.of(people.alice), sweep_id)
    assert (sweep["state"], sweep["started"]) == ("paused", 0)
    assert sweep["explanation"] == "Bob may no longer submit jobs in this project."


def test_a_quote_says_what_the_trials_cost_an_hour(bob: Api, machine: Machine) -> None:
    quote = json_of(bob.post(f"{SWEEPS}/quote", sweep_body()))
    assert (quote["trials"], quote["parallel"]) == (4, 2)
    assert quote["nano_usd_per_hour"] == 2 * 3_600_000_000
    assert quote["expected_nano_usd"] is None


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"parameters": {}}, "parameters", ""),
        ({"parameters": {"lr": {"type": "choice"}}}, "parameters.lr", "needs values"),
        ({"parameters": {"lr": LR | {"low": 0}}}, "parameters.lr", "begins above 0"),
        ({"parameters": {"lr": LR | {"low": 2}}}, "parameters.lr", "more than high"),
        (
            {"parameters": {"lr": LR | {"when": {"layers": ["2"]}}}},
            "",
            "lr depends on layers",
        ),
        (
            {"parameters": {"lr": LR | {"when": {"layers": ["3"]}}, "layers": LAYERS}},
            "",
            "cannot take: 3",
        ),
        ({"algorithm": "grid"}, "", "grid needs countable values: give lr a step"),
        ({"algorithm": "bayes"}, "algorithm", ""),
        ({"job": {"params": {"lr": "1"}}}, "", "lr is in parameters and in job.params"),
        ({"job": {"script": "missing.py"}}, "script", "missing.py"),
        ({"trials": 0}, "trials", ""),
    ],
)
def test_a_sweep_that_makes_no_sense_is_refused(
    bob: Api, machine: Machine, changes: dict[str, Any], field: str, words: str
) -> None:
    take_code(bob)
    answer = bob.post(SWEEPS, sweep_body(**changes))
    assert answer.status_code == 422
    problem = json_of(answer)
    named = [problem.get("field"), *(error["field"] for error in problem.get("errors", []))]
    assert any(field in (name or "") for name in named), problem
    assert words in str(problem)
    assert not Sweep.objects.exists()


def test_sweeps_of_other_projects_do_not_exist(
    bob: Api, people: Personas, machine: Machine
) -> None:
    sweep_id = start_sweep(bob)
    assert Api.of(people.charlie).get(f"{SWEEPS}/{sweep_id}").status_code == 404
    assert Api.of(people.vera).get(f"{SWEEPS}/{sweep_id}").status_code == 200
    assert Api.of(people.vera).post(f"{SWEEPS}/{sweep_id}/stop").status_code == 403
