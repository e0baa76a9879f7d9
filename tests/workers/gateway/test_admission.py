"""Who may ask, how often, how much; and what is turned away when too many ask."""

import http.client
import json
import os
import signal
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator

import httpx
import pytest

from slipway.schemas.serving import EndpointLimits, Rate, RevisionRoute
from tests.workers.machines import eventually
from tests.workers.serving import KEY, Plane, endpoint, key_route, linear_model, plane
from workers.gateway.routes import OPEN, ROUTES

ROW = [[1, 2, 3, 4]]


@pytest.fixture(scope="module")
def served() -> Iterator[Plane]:
    """A gateway; each test hands out its own snapshot for the one replica."""
    with plane() as dataplane:
        replica = dataplane.replica()
        dataplane.start_gateway("--health-port", "0")
        dataplane.serve(replica)
        yield dataplane


@pytest.fixture(scope="module")
def revision(served: Plane) -> RevisionRoute:
    """The revision that is served."""
    return served.portal.snapshot.endpoints[0].revisions[0]


def test_every_route_but_health_wants_a_key(served: Plane) -> None:
    for route in ROUTES:
        path = (
            route.path.pattern.decode().replace(r"\.", ".").replace("(?:/versions/", "/versions/")
        )
        path = path.replace("([A-Za-z0-9._~-]{1,200})", "digits").replace(")?", "")
        path = path.replace("(?:ping|health)", "ping").replace("(?:predict|invocations)", "predict")
        answer = served.call(route.method.decode(), path, key=None)
        assert answer.status == (200 if route.policy == OPEN else 401), path


def test_readiness_is_a_configuration_to_serve(served: Plane) -> None:
    log = (served.folder / "gateway.log").read_text()
    port = log.partition("health on http://127.0.0.1:")[2].split("\n")[0]
    address = f"http://127.0.0.1:{port}/readyz"
    with urllib.request.urlopen(address, timeout=5) as answer:
        assert json.loads(answer.read()) == {"ready": True}
    token = next(served.folder.rglob("health-token"))
    assert token.stat().st_mode & 0o077 == 0
    bearer = {"Authorization": f"Bearer {token.read_text().strip()}"}
    readiness = httpx.get(address, headers=bearer, timeout=5).json()
    assert readiness["ready"]
    assert "the portal responds" in readiness["checks"]["snapshot"]["detail"]


@pytest.mark.thorough
def test_keys_are_scoped_and_expire_and_belong_to_one_endpoint(
    served: Plane, revision: RevisionRoute
) -> None:
    now = int(time.time())
    served.portal.serve(
        endpoint(
            [revision],
            keys=[
                key_route(KEY),
                key_route("reads", "key-2", scopes=["read"]),
                key_route("expired", "key-3", expires_unix_s=now - 1),
                key_route("expires", "key-4", expires_unix_s=now + 3),
            ],
        ),
        endpoint([], id="ep-2", name="other", keys=[key_route("theirs", "key-5")]),
    )
    served.until_in_force()
    assert served.predict(ROW).status == 200
    assert served.predict(ROW, key="reads").json()["code"] == "scope_missing"
    assert served.get("/v1/digits", key="reads").status == 200
    assert served.predict(ROW, key="expired").status == 401
    assert served.get("/v1/digits", key="expired").status == 401
    assert served.predict(ROW, key="expires").status == 200
    eventually(lambda: served.predict(ROW, key="expires").status == 401, within_s=6)
    # A foreign endpoint answers like one that does not exist.
    foreign = served.predict(ROW, "/v1/other/predict").json()
    missing = served.predict(ROW, "/v1/mothe/predict").json()
    assert foreign["detail"].replace("other", "mothe") == missing["detail"]
    assert served.predict(ROW, key="theirs").status == 404
    assert served.predict(ROW, "/invocations", key="theirs").json()["code"] == "no_replica"


@pytest.mark.thorough
def test_a_connection_that_asks_the_same_again_is_judged_each_time(
    served: Plane, revision: RevisionRoute
) -> None:
    """What a client sends with the same head as before is known by it, but not for good."""
    soon = int(time.time()) + 4
    expiring = key_route("expires", "key-2", expires_unix_s=soon)
    served.portal.serve(endpoint([revision], keys=[key_route(KEY), expiring]))
    served.until_in_force()
    with _Same(served, KEY) as own, _Same(served, "expires") as other:
        assert [own.asks() for _ in range(3)] == [200, 200, 200]
        assert other.asks() == 200
        eventually(lambda: other.asks() == 401, within_s=8)
        assert own.asks() == 200
        served.portal.serve(endpoint([revision], keys=[key_route(KEY)], state="paused"))
        served.until_in_force()
        assert own.asks() == 503
        served.portal.serve(endpoint([revision], keys=[key_route("another", "key-3")]))
        served.until_in_force()
        assert own.asks() == 401
        served.portal.serve(endpoint([revision]))
        served.until_in_force()
        assert own.asks() == 200


class _Same:
    """One connection on which the same request is sent, each time in one piece."""

    def __init__(self, served: Plane, key: str) -> None:
        body = json.dumps({"inputs": ROW}).encode()
        self._request = (
            b"POST /v1/digits/predict HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %b\r\nContent-Length: %d\r\n\r\n%b"
            % (key.encode(), len(body), body)
        )
        self._socket = socket.create_connection(("127.0.0.1", served.port), timeout=30)

    def asks(self) -> int:
        """Ask, and return the status."""
        self._socket.sendall(self._request)
        answer = http.client.HTTPResponse(self._socket)
        answer.begin()
        answer.read()
        return answer.status

    def __enter__(self) -> "_Same":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def test_rates_and_sizes_are_limited(served: Plane, revision: RevisionRoute) -> None:
    slow = Rate(per_s=0.5, burst=3)
    served.portal.serve(
        endpoint(
            [revision],
            keys=[key_route(KEY, rate=slow), key_route("fast", "key-2")],
            limits=EndpointLimits(max_body_bytes=100),
        )
    )
    served.until_in_force()
    answers = [served.predict(ROW) for _ in range(5)]
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert answers[3].headers["retry-after"] == "2"
    assert served.predict(ROW, key="fast").status == 200
    large = served.predict(ROW * 50, key="fast")
    assert (large.status, large.json()["code"]) == (413, "body_too_large")
    # A new snapshot does not fill the bucket of a key.
    served.portal.serve(*served.portal.snapshot.endpoints)
    served.until_in_force()
    assert served.predict(ROW).status == 429


@pytest.mark.parametrize(
    ("reason", "detail"),
    [
        ("Paused by Bob. Over night.", "Paused by Bob. Over night."),
        # Nobody has paused what has not served yet.
        ("The endpoint is being created.", "The endpoint is being created."),
        ("", "The endpoint is paused by its owner."),
    ],
)
def test_an_endpoint_that_does_not_serve_says_why(
    served: Plane, revision: RevisionRoute, reason: str, detail: str
) -> None:
    served.portal.serve(endpoint([revision], state="paused", reason=reason))
    served.until_in_force()
    answer = served.predict(ROW)
    assert (answer.status, answer.json()["code"]) == (503, "endpoint_paused")
    assert answer.json()["detail"] == detail


def test_a_model_that_hangs_is_answered_for(served: Plane, revision: RevisionRoute) -> None:
    served.portal.serve(endpoint([revision], limits=EndpointLimits(timeout_s=0.5)))
    served.until_in_force()
    assert served.predict(ROW).status == 200
    replica = served.processes[0].child.pid
    os.kill(replica, signal.SIGSTOP)
    answer = served.predict(ROW)
    os.kill(replica, signal.SIGCONT)
    assert (answer.status, answer.json()["code"]) == (504, "prediction_timeout")
    assert served.predict(ROW).status == 200


@pytest.mark.thorough
def test_a_shadow_is_asked_and_compared_and_never_answers(
    served: Plane, revision: RevisionRoute
) -> None:
    shadow = served.replica(
        "rep-shadow",
        revision_id="rev-2",
        model_version="2",
        model_dir=str(linear_model(served.folder / "shadow", slope=3)),
    )
    second = RevisionRoute(id="rev-2", model="m", model_version="2", replicas=[shadow.route])
    served.portal.serve(endpoint([revision, second], shadow={"revision_id": "rev-2"}))
    served.until_in_force()
    eventually(lambda: served.get("/v1/digits").json()["revisions"][1]["replicas_ready"])
    answers = [served.predict([[number, 0, 0, 0]]) for number in range(20)]
    assert {answer.headers["x-slipway-model-version"] for answer in answers} == {"1"}

    def counted() -> bool:
        reports = [report.endpoints[0] for report in served.portal.reports[-1:] if report.endpoints]
        counts = {counter.revision_id: counter for count in reports for counter in count.revisions}
        two = counts.get("rev-2")
        # Twice nothing and thrice nothing are the same; the other nineteen differ.
        return two is not None and (two.mirrored, two.differed) == (20, 19)

    eventually(counted, what="the shadow was compared")
    shadow.process.kill()

    def left_out() -> int:
        assert served.predict(ROW).status == 200
        reports = [report.endpoints[0] for report in served.portal.reports[-1:] if report.endpoints]
        return sum(counter.unmirrored for count in reports for counter in count.revisions)

    eventually(left_out, what="copies that no replica could take are counted")


@pytest.mark.thorough
def test_too_many_are_turned_away_early_and_the_others_are_served(
    served: Plane, revision: RevisionRoute
) -> None:
    served.portal.serve(endpoint([revision], limits=EndpointLimits(max_in_flight=1)))
    served.until_in_force()
    statuses: list[int] = []
    waits: list[str] = []

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
        for _ in range(30):
            answer = served.predict(ROW, connection=connection)
            statuses.append(answer.status)
            if answer.status == 503:
                waits.append(answer.headers["retry-after"])
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert set(statuses) == {200, 503}
    assert set(waits) == {"1"}
    assert statuses.count(200) > len(threads)
