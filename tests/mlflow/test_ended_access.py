"""MLflow's routes are closed within seconds to a token that ended and to suspended people."""

import pytest

from portal.api.mlflow.auth import KNOWN_FOR_S
from slipway.schemas.accounts import Scope
from tests.processes import wait_for
from tests.tracking import Rest, TrackingPortal
from tests.turns import thorough_after

pytestmark = pytest.mark.postgres

# One that the portal answers itself, one that goes on to MLflow's server, one of artifacts.
_ROUTES = (
    "/api/2.0/mlflow/experiments/get?experiment_id=0",
    "/api/2.0/mlflow/experiments/search?max_results=1",
    "/api/2.0/mlflow-artifacts/artifacts?path=",
)
# The portal remembers who somebody is for a moment; a busy machine takes its time besides.
_WITHIN_S = KNOWN_FOR_S + 5


@pytest.mark.parametrize("end", thorough_after(1, ["revoked", "suspended"]))
def test_an_ended_token_is_refused_by_every_kind_of_route(
    tracking: TrackingPortal, end: str
) -> None:
    portal = tracking.portal
    with portal.client("charlie") as charlie, portal.client("root") as root:
        scopes = [scope for scope in Scope if scope != Scope.ADMIN]
        made = charlie.post("/tokens", json={"name": end, "scopes": scopes}).json()
        person = charlie.get("/whoami").json()["user"]["id"]
        client = Rest(tracking.uri("charlie"), {"Authorization": f"Bearer {made['token']}"})
        before = [client.call("GET", route).status_code for route in _ROUTES]
        assert 401 not in before
        assert before[0] == 200
        if end == "revoked":
            charlie.delete(f"/tokens/{made['id']}").raise_for_status()
        else:
            heir = root.get("/whoami").json()["user"]["id"]
            change = {"is_active": False, "hand_over_to": heir}
            root.patch(f"/users/{person}", json=change).raise_for_status()
        try:
            wait_for(
                lambda: client.call("GET", _ROUTES[0]).status_code == 401,
                "refusal",
                within_s=_WITHIN_S,
            )
            assert {client.call("GET", route).status_code for route in _ROUTES} == {401}
        finally:
            root.patch(f"/users/{person}", json={"is_active": True}).raise_for_status()
