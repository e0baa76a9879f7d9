"""Aliases and stages that an MLflow client sets go through the gates of the project."""

from typing import Any

import httpx
import pytest

from tests.tracking import Rest, TrackingPortal

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def alice(tracking: TrackingPortal) -> Rest:
    return tracking.client("alice")


@pytest.fixture(scope="module")
def api(tracking: TrackingPortal) -> httpx.Client:
    """The portal's own API, for Alice's project."""
    client = tracking.portal.client("alice")
    client.base_url = f"{client.base_url}projects/{tracking.projects['alice']}/"
    return client


def register(client: Rest, name: str) -> None:
    """Register the model of a new run."""
    run = client.new_run()
    client.write_model(run)
    body = {"name": name, "source": f"runs:/{run}/model", "run_id": run}
    client.post("model-versions/create", body)


def refused(client: Rest, method: str, path: str, content: dict[str, Any]) -> tuple[int, str, str]:
    """Return how a call was refused."""
    answer = client.call(method, path, json=content)
    assert answer.status_code >= 400, answer.text
    return answer.status_code, answer.json()["error_code"], answer.json()["message"]


def test_a_client_sets_aliases_and_stages_through_the_gates(alice: Rest, api: httpx.Client) -> None:
    alice.post("registered-models/create", {"name": "gated"})
    for _ in range(2):
        register(alice, "gated")
    assert api.get("models/gated/versions/1").json()["author"]["email"] == "alice@example.org"
    alice.post("registered-models/alias", {"name": "gated", "alias": "free", "version": "1"})
    rules = {
        "stages": ["Development", "Staging", "Production", "Archived"],
        "gates": [
            {"kind": "alias", "name": "champion", "gates": [{"kind": "approval"}]},
            {"kind": "stage", "name": "Production", "gates": [{"kind": "signature"}]},
        ],
        "revision": 0,
    }
    assert api.put("registry-rules", json=rules).status_code == 200
    for alias in ("champion", "Champion"):
        body = {"name": "gated", "alias": alias, "version": 1}
        status, code, message = refused(alice, "POST", "registered-models/alias", body)
        assert (status, code) == (409, "INVALID_STATE")
        assert "Nobody has requested approval of version 1" in message
    body = {"name": "gated", "version": "1", "stage": "production"}
    assert refused(alice, "POST", "model-versions/transition-stage", body)[0] == 409
    moved = alice.post("model-versions/transition-stage", body | {"stage": "Staging"})
    assert moved["model_version"]["current_stage"] == "Staging"
    alice.post("registered-models/alias", {"name": "gated", "alias": "free", "version": 2})
    version = alice.get("registered-models/alias", name="gated", alias="free")["model_version"]
    assert version["version"] == "2"
    assert alice.call(
        "DELETE", "registered-models/alias", json={"name": "gated", "alias": "free"}
    ).is_success
    moves = api.get("models/gated/history").json()["items"]
    assert [(move["target"], move["version"]) for move in moves] == [
        ("free", None),
        ("free", 2),
        ("Staging", 1),
        ("free", 1),
    ]
    assert {move["by"]["email"] for move in moves} == {"alice@example.org"}


def test_there_is_no_way_around(alice: Rest) -> None:
    alice.post("registered-models/create", {"name": "straight"})
    register(alice, "straight")
    tag = {"name": "straight", "key": "mlflow.prompt.is_prompt", "value": "true"}
    assert refused(alice, "POST", "registered-models/set-tag", tag)[0] == 400
    for wrong in (
        {"name": ["straight"], "alias": "a", "version": 1},
        {"name": "straight", "alias": {}, "version": 1},
        {"name": "straight", "alias": "a", "version": 1.5},
        {"name": "straight", "alias": "latest", "version": 1},
        {"alias": "a", "version": 1},
    ):
        assert refused(alice, "POST", "registered-models/alias", wrong)[0] == 400
    missing = {"name": "straight", "alias": "a", "version": 9}
    assert refused(alice, "POST", "registered-models/alias", missing)[0] == 404
    stage = {"name": "straight", "version": 1, "stage": "Nowhere"}
    assert refused(alice, "POST", "model-versions/transition-stage", stage)[0] == 400
    prompt = {"name": "greet", "tags": [{"key": "mlflow.prompt.is_prompt", "value": "true"}]}
    alice.post("registered-models/create", prompt)
    text = {"key": "mlflow.prompt.text", "value": "Hello"}
    alice.post(
        "model-versions/create",
        {"name": "greet", "source": "prompt-template", "tags": [text, prompt["tags"][0]]},
    )
    alice.post("registered-models/alias", {"name": "greet", "alias": "live", "version": "1"})
    assert alice.get("registered-models/alias", name="greet", alias="live")
