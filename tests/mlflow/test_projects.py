"""Which project a client means, and how it says so."""

import httpx
import pytest

from tests.tracking import TrackingPortal

pytestmark = pytest.mark.postgres


def test_what_others_rely_on_stands_in_the_audit_log(tracking: TrackingPortal) -> None:
    rest = tracking.client("alice")
    rest.post("registered-models/create", {"name": "audited"})
    assert rest.call("DELETE", "registered-models/delete", json={"name": "audited"}).is_success
    refused = rest.call("DELETE", "registered-models/delete", json={"name": "audited"})
    assert refused.status_code == 404
    with tracking.portal.client("alice") as api:
        events = api.get(f"/projects/{tracking.projects['alice']}/audit").json()["items"]
    seen = [(event["verb"], event["target_label"]) for event in events if "model" in event["verb"]]
    assert seen.count(("model.create", "audited")) == 1
    assert seen.count(("model.delete", "audited")) == 1


def test_long_names_in_the_audit_log_are_marked_and_stay_apart(tracking: TrackingPortal) -> None:
    rest = tracking.client("alice")
    names = [f"{'audited-' * 30}{letter}" for letter in "ab"]
    for name in names:
        rest.post("registered-models/create", {"name": name})
    with tracking.portal.client("alice") as api:
        events = api.get(f"/projects/{tracking.projects['alice']}/audit").json()["items"]
    made = [event for event in events if event["target_label"].startswith("audited-audited")]
    assert len({event["target_id"] for event in made}) == 2
    assert len({event["target_label"] for event in made}) == 2
    for event in made:
        assert "the beginning of 241 characters" in event["target_label"]
        assert len(event["target_id"]) <= 64
        assert event["after"]["name"] == event["target_label"]


def test_the_project_is_told_by_the_address_the_user_name_or_the_token(
    tracking: TrackingPortal,
) -> None:
    token, url = tracking.portal.tokens["alice"], f"{tracking.portal.url}/mlflow"
    path = "api/2.0/mlflow/experiments/search?max_results=5"
    with tracking.portal.client("alice") as api:
        api.post("/projects", json={"name": "second lab"})
    bearer = {"Authorization": f"Bearer {token}"}
    unclear = httpx.get(f"{url}/{path}", headers=bearer)
    assert (unclear.status_code, unclear.json()["error_code"]) == (400, "INVALID_PARAMETER_VALUE")
    assert "MLFLOW_TRACKING_URI" in unclear.json()["message"]
    listed = httpx.get(f"{url}/second-lab/{path}", headers=bearer).json()["experiments"]
    assert [experiment["name"] for experiment in listed] == ["Default"]
    named = httpx.get(f"{url}/{path}", auth=("second-lab", token))
    assert named.status_code == 200
    foreign = httpx.get(f"{url}/{tracking.projects['charlie']}/{path}", headers=bearer)
    unknown = httpx.get(f"{url}/nobody-has-this/{path}", headers=bearer)
    assert foreign.status_code == unknown.status_code == 404
    without = httpx.get(f"{url}/{path}")
    assert (without.status_code, without.json()["error_code"]) == (401, "UNAUTHENTICATED")
    other = {"X-MLFLOW-WORKSPACE": "second-lab"}
    dropped = httpx.get(f"{tracking.uri('alice')}/{path}", headers=bearer | other)
    assert dropped.status_code == 200
