"""Trials that run again with other seeds: jobs, mean and spread, price, refusals."""

from typing import Any

import pytest

from portal.experiments.models import Run
from portal.experiments.services.job_runs import run_id_of
from portal.sweeps.models import Trial
from portal.training.models import Job
from portal.workloads.models import Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.services.desired import desired_for
from tests.personas import Api, Personas, json_of
from tests.portal.experiments.world import log_curve
from tests.portal.sweeps.trials import (
    LAYERS,
    SWEEPS,
    advance,
    end_trials,
    shown,
    start_sweep,
    trials_of,
)
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import text_of
from tests.portal.workloads.machines import Machine, finish, run


def _accuracy(values: dict[str, Any]) -> dict[str, float]:
    return {"accuracy": int(values["layers"]) / 10}


def _searched(bob: Api, machine: Machine, **changes: Any) -> str:
    """Run a grid of three trials, the last of which is the best. Returns its id."""
    sweep_id = start_sweep(
        bob, parameters={"layers": LAYERS}, algorithm="grid", parallel=3, **changes
    )
    advance()
    assert end_trials(bob, sweep_id, machine, _accuracy) == 3
    advance()
    return sweep_id


def _end_repeats(machine: Machine, answer: dict[str, Any], values: dict[int, float]) -> None:
    """Let the jobs of repeats log these values by seed, and end."""
    run_passes()
    for repeat in answer["groups"][0]["repeats"]:
        workload = Workload.objects.get(pk=repeat["job"])
        desired_for(node=machine.node)
        run(workload)
        tracked = Run.objects.get(pk=run_id_of(workload.pk))
        log_curve(tracked, "accuracy", [values[repeat["seed"]]])
        finish(workload, "completed", exit_code=0)


def test_the_best_trial_runs_again_with_three_seeds(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    sweep_id = _searched(bob, machine, job={"params": {"epochs": "3"}})
    before = shown(bob, sweep_id)["cost_nano_usd"]
    path = f"{SWEEPS}/{sweep_id}/repeats"
    assert json_of(bob.get(path)) == {"groups": []}
    quote = json_of(bob.post(f"{path}/quote", {}))
    assert (quote["trials"], quote["nano_usd_per_hour"]) == (3, 3 * 3_600_000_000)
    assert Job.objects.count() == 3
    made = bob.post(path, {})
    assert made.status_code == 201
    (group,) = json_of(made)["groups"]
    assert (group["trial"], group["parameters"], group["mean"]) == (2, {"layers": "8"}, None)
    seeds = [(repeat["parameter"], repeat["seed"]) for repeat in group["repeats"]]
    assert seeds == [("seed", 1), ("seed", 2), ("seed", 3)]
    job = json_of(bob.get(f"projects/vision/jobs/{group['repeats'][1]['job']}"))
    assert job["params"] == {"epochs": "3", "layers": "8", "seed": "2"}
    assert job["workload"]["name"] == "digits"
    _end_repeats(machine, json_of(made), {1: 0.7, 2: 0.8, 3: 0.9})
    (group,) = json_of(bob.get(path))["groups"]
    assert group["mean"] == pytest.approx(0.8)
    assert group["deviation"] == pytest.approx(0.1)
    sweep = shown(bob, sweep_id)
    assert (sweep["best"]["value"], sweep["started"]) == (0.8, 3)
    costs = [
        json_of(bob.get(f"projects/vision/jobs/{repeat['job']}"))["cost_nano_usd"]
        for repeat in group["repeats"]
    ]
    assert sweep["cost_nano_usd"] == before + sum(costs)
    text = text_of(browse(people.vera).get(f"/p/vision/sweeps/{sweep_id}"))
    assert "seed=2" in text
    assert "0.8 ± 0.1" in text


def test_the_page_asks_with_the_price_and_starts_the_jobs(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    sweep_id = _searched(bob, machine)
    client, page = browse(people.bob), f"/p/vision/sweeps/{sweep_id}"
    assert "Repeat best" in text_of(client.get(page))
    assert "$10.80 an hour while all 3 run" in text_of(client.get(f"{page}/repeat"))
    bad = client.post(f"{page}/repeat", {"parameter": "seed", "seeds": "one"})
    assert (bad.status_code, "Write whole numbers" in text_of(bad)) == (422, True)
    bad = client.post(f"{page}/repeat", {"parameter": "layers", "seeds": "7"})
    assert (bad.status_code, "searches for layers" in text_of(bad)) == (422, True)
    client.post(f"{page}/repeat", {"parameter": "random_state", "seeds": "7, 11"})
    (group,) = json_of(bob.get(f"{SWEEPS}/{sweep_id}/repeats"))["groups"]
    assert {repeat["parameter"] for repeat in group["repeats"]} == {"random_state"}
    assert [repeat["seed"] for repeat in group["repeats"]] == [7, 11]
    assert bob.post(f"{SWEEPS}/{sweep_id}/repeats", {}).status_code == 201
    (group,) = json_of(bob.get(f"{SWEEPS}/{sweep_id}/repeats"))["groups"]
    assert [repeat["seed"] for repeat in group["repeats"]] == [1, 2, 3, 7, 11]


def test_what_cannot_be_repeated_is_refused(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob)
    path = f"{SWEEPS}/{sweep_id}/repeats"
    early = bob.post(path, {})
    assert (early.status_code, json_of(early)["code"]) == (409, "no_best_trial")
    advance()
    end_trials(bob, sweep_id, machine, lambda values: {"accuracy": values["lr"]})
    advance()
    assert bob.post(path, {"trial": 0, "seeds": [5]}).status_code == 201
    for body, field in (
        ({"trial": 0, "seeds": [5]}, "seeds"),
        ({"trial": 9}, "trial"),
        ({"parameter": "lr"}, "parameter"),
        ({"seeds": [1, 1]}, None),
    ):
        refused = bob.post(path, body)
        assert refused.status_code == 422
        assert field is None or json_of(refused)["field"] == field
    assert Trial.objects.count() == len(trials_of(bob, sweep_id))


def test_stopping_a_sweep_stops_its_repeats(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob, trials=9)
    advance()
    end_trials(bob, sweep_id, machine, lambda values: {"accuracy": values["lr"]})
    advance()
    made = json_of(bob.post(f"{SWEEPS}/{sweep_id}/repeats", {"seeds": [1]}))
    job = made["groups"][0]["repeats"][0]["job"]
    bob.post(f"{SWEEPS}/{sweep_id}/stop")
    workload = Workload.objects.get(pk=job)
    assert workload.state in ("stopping", "stopped")
