"""How often a token may ask, and an address guess."""

from collections.abc import Iterator

import httpx
import pytest

from tests.portals import RunningPortal, running_portal

pytestmark = pytest.mark.postgres

_LIMIT = 300
_GUESSES = 20


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPortal]:
    """A portal that lets little through."""
    with running_portal(
        tmp_path_factory.mktemp("limits"),
        SLIPWAY_TRACKING_REQUESTS_PER_MINUTE=str(_LIMIT),
        SLIPWAY_API_REQUESTS_PER_MINUTE=str(_GUESSES),
    ) as running:
        yield running


def _asked_until_refused(
    portal: RunningPortal, token: str, most: int
) -> tuple[int, httpx.Response]:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{portal.url}/mlflow", headers=headers, timeout=30) as client:
        for number in range(most):
            answer = client.get("/api/2.0/mlflow/runs/get", params={"run_id": "0" * 32})
            if answer.status_code == 429:
                return number, answer
    raise AssertionError("nothing was refused")


@pytest.mark.thorough
def test_a_token_that_asks_too_often_is_told_when_to_go_on(portal: RunningPortal) -> None:
    with portal.client("alice") as api:
        assert api.post("/projects", json={"name": "lab"}).status_code == 201
    accepted, refused = _asked_until_refused(portal, portal.tokens["alice"], _LIMIT * 2)
    assert _LIMIT - 5 <= accepted <= _LIMIT + 5
    assert refused.json()["error_code"] == "REQUEST_LIMIT_EXCEEDED"
    assert 1 <= int(refused.headers["retry-after"]) <= 61
    at = f"{portal.url}/mlflow/api/2.0/mlflow/runs/get"
    statuses = {"alice": 429, "bob": 404}  # bob has no project, and his own minute
    for name, status in statuses.items():
        headers = {"Authorization": f"Bearer {portal.tokens[name]}"}
        assert httpx.get(at, headers=headers).status_code == status


def test_who_guesses_tokens_is_stopped(portal: RunningPortal) -> None:
    accepted, refused = _asked_until_refused(portal, "slp_guess", _GUESSES * 3)
    assert accepted <= _GUESSES
    assert "retry-after" in refused.headers
