"""Importance of the parameters of a sweep, estimated while its trials end."""

import math
from typing import Any

import pytest

from portal.sweeps.services.importances import update_importances
from tests.personas import Api, Personas
from tests.portal.sweeps.trials import (
    LAYERS,
    LR,
    advance,
    end_trials,
    shown,
    start_sweep,
)
from tests.portal.web.conftest import Browse
from tests.portal.web.reading import html_of, text_of
from tests.portal.workloads.machines import Machine

NOISE = {"type": "float", "low": 0, "high": 1}
DEPTH = {"type": "int", "low": 1, "high": 3, "when": {"layers": ["8"]}}
PARAMETERS = {"lr": LR, "layers": LAYERS, "noise": NOISE, "depth": DEPTH}


def measured(values: dict[str, Any]) -> dict[str, float]:
    """Return a metric that depends on the learning rate, a little on the layers."""
    return {"accuracy": math.log10(values["lr"]) + 0.05 * int(values["layers"])}


def _end_all(bob: Api, sweep_id: str, machine: Machine, count: int) -> None:
    ended = 0
    while ended < count:
        advance()
        ended += end_trials(bob, sweep_id, machine, measured)
    advance()


def test_the_parameter_that_matters_has_the_largest_share(
    bob: Api, people: Personas, browse: Browse, machine: Machine
) -> None:
    sweep_id = start_sweep(bob, parameters=PARAMETERS, trials=14, parallel=2)
    _end_all(bob, sweep_id, machine, 8)
    assert update_importances() == 0
    assert (shown(bob, sweep_id)["importance"], shown(bob, sweep_id)["importance_of"]) == ({}, 0)
    assert 'id="importance"' not in html_of(browse(people.vera).get(f"/p/vision/sweeps/{sweep_id}"))
    _end_all(bob, sweep_id, machine, 2)
    assert update_importances() == 1
    assert update_importances() == 0, "nothing has changed since"
    _end_all(bob, sweep_id, machine, 4)
    assert shown(bob, sweep_id)["state"] == "finished"
    assert update_importances() == 1
    assert update_importances() == 0

    sweep = shown(bob, sweep_id)
    assert sweep["importance_of"] == 14
    assert next(iter(sweep["importance"])) == "lr"
    assert set(sweep["importance"]) == {"lr", "layers", "noise"}, "depth is not in all trials"
    assert sweep["importance"]["lr"] > 0.5
    assert math.isclose(sum(sweep["importance"].values()), 1)
    page = browse(people.vera).get(f"/p/vision/sweeps/{sweep_id}")
    assert "Importance of parameters for accuracy" in text_of(page)
    assert "estimated from 14 complete trials" in text_of(page)


@pytest.mark.thorough
def test_a_metric_that_never_differs_has_no_importance(bob: Api, machine: Machine) -> None:
    sweep_id = start_sweep(bob, trials=10, parallel=2)
    ended = 0
    while ended < 10:
        advance()
        ended += end_trials(bob, sweep_id, machine, lambda _: {"accuracy": 0.5})
    advance()
    assert update_importances() == 1
    assert update_importances() == 0
    assert shown(bob, sweep_id)["importance"] == {}
