"""A canary whose predictions are not those of its training is taken back by itself.

Nothing fails and nothing is slow: the portal, the control worker, the replicas, the gateway with
its recording, and the analysis are real, and the verdict comes from the recorded predictions.
"""

import secrets
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from slipway.samples import sample_of
from tests.integration.serving.living import Endpoints, running_endpoints
from tests.processes import wait_for

pytestmark = pytest.mark.integration
# A replica starts cold, and passes of the control worker come every ten seconds, on a busy machine.
STARTS_WITHIN_S = 180.0
LOOKS_WITHIN_S = 120.0
TAKEN_BACK_WITHIN_S = 300.0
# As small as a window may be: one request fills it.
WINDOW_ROWS = 200
_random = np.random.default_rng(7)
ROWS = _random.uniform(1, 2, size=(1000, 2))
# The rollout lasts longer than the test: only a verdict ends it.
CANARY = {"kind": "canary", "percents": [50], "bake_s": 3600}
# No rule but the judge of quality may take it back, least of all latency on a busy machine.
RULES = {"max_error_percent": None, "max_p99_ms": None, "max_latency_factor": None}


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    """A Slipway with a node, a gateway and MLflow's server."""
    folder = tmp_path_factory.mktemp("drifting")
    with running_endpoints(folder, SLIPWAY_EMBEDDED_TRACKING="true") as lab:
        log = lab.running.log
        wait_for(lambda: "tracking ready" in log(), "MLflow's server", within_s=STARTS_WITHIN_S)
        yield lab


def _register(endpoints: Endpoints, factor: float) -> int:
    """Register the model of a run that was trained to double, whatever it does now.

    Returns its version once the data of its training are known.
    """
    run = endpoints.log(factor, sample_of(ROWS, 2 * ROWS))
    made = endpoints.call("POST", "models/double/versions", {"source": f"runs:/{run}/model"})
    version = int(made["version"])
    wait_for(
        lambda: endpoints.call("GET", f"models/double/versions/{version}")["golden"],
        "golden predictions that were recorded by themselves",
        within_s=LOOKS_WITHIN_S,
        every_s=0.5,
    )
    return version


class _Clients:
    """Clients that ask in batches, with inputs like those of the training."""

    def __init__(self, endpoints: Endpoints, name: str) -> None:
        self._endpoints, self._name = endpoints, name
        self.statuses: Counter[int] = Counter()
        self.factors: Counter[float] = Counter()

    def ask(self) -> None:
        """Ask for as many predictions as a window holds."""
        rows = _random.choice(ROWS, WINDOW_ROWS, replace=False).tolist()
        answer = self._endpoints.gateway.post(
            f"/v1/{self._name}/predict",
            json={"inputs": rows},
            headers={"Authorization": f"Bearer {self._endpoints.keys[self._name]}"},
        )
        self.statuses[answer.status_code] += 1
        if answer.status_code == 200:
            self.factors[round(answer.json()["predictions"][0][0] / rows[0][0], 6)] += 1


@pytest.mark.thorough
def test_a_canary_whose_predictions_drift_is_taken_back_by_itself(endpoints: Endpoints) -> None:
    good, bad = _register(endpoints, 2), _register(endpoints, 3)
    # Its golden predictions were recorded anew with what it does now, so they come back equal.
    endpoints.record(bad, 3)
    name = f"drifting-{secrets.token_hex(3)}"
    endpoints.create(name, good, rules=RULES)
    watched = {"window_rows": WINDOW_ROWS, "window_at_least_s": 0}
    endpoints.call("PATCH", f"endpoints/{name}/monitoring/settings", watched)
    endpoints.until(name, 2, within_s=STARTS_WITHIN_S)
    clients = _Clients(endpoints, name)
    endpoints.promote(name, bad, **CANARY)

    def ended() -> bool:
        clients.ask()
        [last, *_] = endpoints.call("GET", f"endpoints/{name}/rollouts")["items"]
        return last["ended_at"] is not None

    within_s = STARTS_WITHIN_S + TAKEN_BACK_WITHIN_S
    wait_for(ended, "end of the canary", within_s=within_s, every_s=0.2)
    rollout = endpoints.settled(name)
    assert rollout["state"] == "rolled_back", rollout
    assert "Its outputs differ from the baseline in two windows in a row" in rollout["reason"]
    assert "while its inputs do not" in rollout["reason"]
    assert set(clients.statuses) == {200}
    assert set(clients.factors) == {2.0, 3.0}, "the canary got its share, and no one else answered"
    _stands_as_before(endpoints, name)


def _stands_as_before(endpoints: Endpoints, name: str) -> None:
    shown = endpoints.show(name)
    revisions = {revision["number"]: revision for revision in shown["revisions"]}
    assert (shown["state"], shown["rollout"]) == ("serving", None)
    assert (revisions[1]["state"], revisions[1]["weight"]) == ("serving", 100)
    assert (revisions[2]["state"], revisions[2]["weight"]) == ("failed", 0)
    assert "Its outputs differ" in revisions[2]["reason"]
    assert "Revision 2 was rolled back to revision 1: Its outputs differ" in endpoints.story(name)
    endpoints.until(name, 2)
    after = _Clients(endpoints, name)
    for _ in range(10):
        after.ask()
    assert set(after.factors) == {2.0}
