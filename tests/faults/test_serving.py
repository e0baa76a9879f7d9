"""What the data plane does when its parts die: predictions go on, and none given is lost."""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from slipway.schemas.serving import GoldenPrediction, ReplicaLink, ReplicaState
from tests.workers.gateway.captures import captured, statuses
from tests.workers.machines import ROOT, eventually
from tests.workers.serving import (
    ENVIRONMENT,
    KEY,
    Answer,
    Plane,
    endpoint,
    key_route,
    linear_model,
    plane,
)


@pytest.fixture
def dataplane() -> Iterator[Plane]:
    """A data plane to break."""
    with plane() as running_plane:
        yield running_plane


class Clients:
    """Clients that ask all the time and keep every answer."""

    def __init__(self, served: Plane, count: int = 4) -> None:
        self.answers: list[Answer] = []
        self.broken: list[str] = []
        self._served = served
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def until(self, count: int) -> None:
        """Wait for so many answers."""
        eventually(lambda: len(self.answers) > count, what=f"{count} answers")

    def stop(self) -> list[Answer]:
        """Have all stop; returns what they were answered."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        return self.answers

    def _ask(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._served.port, timeout=30)
        while not self._stop.is_set():
            try:
                self.answers.append(self._served.predict([[1, 2, 3, 4]], connection=connection))
            except (OSError, http.client.HTTPException) as error:
                self.broken.append(repr(error))
                connection.close()
                time.sleep(0.01)
        connection.close()


def links(served: Plane) -> list[ReplicaLink]:
    """How the gateway sees its replicas."""
    return served.portal.reports[-1].replicas if served.portal.reports else []


def ids(answers: list[Answer]) -> set[str]:
    """Ids of the predictions that were given."""
    return {answer.headers["x-slipway-prediction-id"] for answer in answers if answer.status == 200}


@pytest.mark.thorough
def test_a_replica_that_is_killed_costs_no_prediction(dataplane: Plane) -> None:
    replicas = [dataplane.replica(f"rep-{number}") for number in (1, 2)]
    dataplane.start_gateway()
    dataplane.serve(*replicas)
    clients = Clients(dataplane)
    clients.until(200)
    replicas[0].process.kill()
    seen = len(clients.answers)
    clients.until(seen + 200)
    answers = clients.stop()
    assert {answer.status for answer in answers} == {200}
    assert not clients.broken


@pytest.mark.thorough
def test_the_only_replica_that_is_killed_means_one_clear_answer_and_is_found_again(
    dataplane: Plane,
) -> None:
    replica = dataplane.replica()
    dataplane.start_gateway()
    dataplane.serve(replica)
    # Held in the middle: asked, and not answered.
    os.kill(replica.process.child.pid, signal.SIGSTOP)
    answers: list[Answer] = []
    asking = threading.Thread(target=lambda: answers.append(dataplane.predict([[1, 2, 3, 4]])))
    asking.start()
    eventually(
        lambda: any(link.in_flight for link in links(dataplane)),
        what="the request is at the replica",
    )
    replica.process.kill()
    asking.join(10)
    assert (answers[0].status, answers[0].json()["code"]) == (502, "replica_lost")
    name = answers[0].headers["x-slipway-prediction-id"]
    eventually(lambda: statuses(dataplane).get(name) == 502, what="it is captured as lost")
    after = dataplane.predict([[1, 2, 3, 4]])
    assert (after.status, after.json()["code"]) == (503, "no_replica")
    assert after.headers["retry-after"] == "1"
    dataplane.portal.replicas.clear()
    dataplane.replica()
    eventually(lambda: dataplane.predict([[1, 2, 3, 4]]).status == 200, within_s=10)


def test_a_gateway_that_is_killed_loses_no_prediction_it_gave(dataplane: Plane) -> None:
    replica = dataplane.replica()
    dataplane.start_gateway()
    dataplane.serve(replica)
    given: set[str] = set()
    for _ in range(2):
        clients = Clients(dataplane)
        clients.until(300)
        assert dataplane.gateway is not None
        dataplane.gateway.kill()
        given |= ids(clients.stop())
        dataplane.start_gateway()
        eventually(lambda: dataplane.get("/v1/digits/ping").status == 200)
    assert len(given) > 600
    eventually(lambda: given <= captured(dataplane), what="all of them are in Parquet")


def revoke(served: Plane, *arguments: str, folder: str = "") -> subprocess.CompletedProcess[str]:
    """Revoke a key on the gateway's host, as an operator would."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "workers.gateway.revoke", *arguments),
            *("--data-dir", folder or str(served.data_dir)),
        ],
        cwd=ROOT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.thorough
def test_a_key_is_refused_within_a_second_while_the_portal_hangs(dataplane: Plane) -> None:
    dataplane.start_gateway()
    names = [f"key-{number}" for number in range(3)]
    keys = [key_route(name, name) for name in names]
    dataplane.serve(dataplane.replica(), keys=[key_route(KEY), *keys])
    dataplane.portal.answers.clear()
    polls = dataplane.portal.polls
    eventually(
        lambda: dataplane.portal.polls > polls, what="a poll that the portal does not answer"
    )
    for name in names:
        assert dataplane.predict([[1, 2, 3, 4]], key=name).status == 200
        assert revoke(dataplane, name).returncode == 0
        began = time.monotonic()
        eventually(lambda: dataplane.predict([[1, 2, 3, 4]], key=name).status == 401)  # noqa: B023
        assert time.monotonic() - began < 1
    dataplane.portal.answers.set()


@pytest.mark.thorough
def test_a_revocation_that_would_do_nothing_is_refused(dataplane: Plane) -> None:
    dataplane.start_gateway()
    dataplane.serve(dataplane.replica(), keys=[key_route(KEY), key_route("another", "key-2")])
    wrong_folder = revoke(dataplane, "key-2", folder=str(dataplane.folder))
    assert wrong_folder.returncode == 1
    assert "is not the data folder of a gateway" in wrong_folder.stderr
    typo = revoke(dataplane, "key-3", "key-2")
    assert typo.returncode == 1
    assert "serves no key key-3" in typo.stderr
    # The others of the command are refused all the same.
    eventually(lambda: dataplane.predict([[1, 2, 3, 4]], key="another").status == 401, within_s=5)


@pytest.mark.thorough
def test_predictions_are_given_and_keys_hold_while_the_portal_is_gone(dataplane: Plane) -> None:
    replica = dataplane.replica()
    dataplane.start_gateway()
    dataplane.serve(replica, keys=[key_route(KEY), key_route("another", "key-2")])
    dataplane.portal.stop()
    assert dataplane.gateway is not None
    dataplane.gateway.kill()
    # Restarted in the middle of the outage: everything it knows is on its disk.
    dataplane.start_gateway()
    eventually(lambda: dataplane.predict([[1, 2, 3, 4]]).status == 200, within_s=5)
    assert dataplane.predict([[1, 2, 3, 4]], key="wrong").status == 401
    assert dataplane.predict([[1, 2, 3, 4]], key="another").status == 200
    assert revoke(dataplane, "key-2").returncode == 0
    eventually(lambda: dataplane.predict([[1, 2, 3, 4]], key="another").status == 401, within_s=5)
    assert dataplane.predict([[1, 2, 3, 4]]).status == 200
    dataplane.gateway.kill()
    dataplane.start_gateway()
    assert dataplane.predict([[1, 2, 3, 4]], key="another").status == 401


@pytest.mark.thorough
def test_promotes_and_rollbacks_under_load_fail_no_request(dataplane: Plane) -> None:
    old = dataplane.replica("rep-1")
    new = dataplane.replica(
        "rep-2",
        revision_id="rev-2",
        model_version="2",
        model_dir=str(linear_model(dataplane.folder / "new", slope=3)),
    )
    dataplane.start_gateway()
    route = dataplane.serve(old, new)
    clients = Clients(dataplane, 2)
    for weights in [(99, 1), (0, 100), (100, 0), (50, 50)]:
        revisions = [
            revision.model_copy(update={"weight": weight})
            for revision, weight in zip(route.revisions, weights, strict=True)
        ]
        dataplane.portal.serve(endpoint(revisions))
        dataplane.until_in_force()
        if 0 in weights:
            expected = "1" if weights[0] else "2"
            answer = dataplane.predict([[1, 2, 3, 4]])
            assert answer.headers["x-slipway-model-version"] == expected
    # The revision of weight 0 is taken out and its replica drained.
    dataplane.portal.serve(endpoint([route.revisions[0]]))
    dataplane.until_in_force()
    assert new.process.stop() == 0
    answers = clients.stop()
    assert {response.status for response in answers} == {200}
    assert not clients.broken
    assert {response.json()["predictions"][0][0] for response in answers} == {20.0, 30.0}


@pytest.mark.thorough
def test_a_replica_that_drains_finishes_what_it_began(dataplane: Plane) -> None:
    replicas = [dataplane.replica(f"rep-{number}") for number in (1, 2)]
    dataplane.start_gateway()
    dataplane.serve(*replicas)
    clients = Clients(dataplane)
    clients.until(100)
    assert replicas[0].process.stop() == 0
    answers = clients.stop()
    assert {answer.status for answer in answers} == {200}
    assert not clients.broken
    states = dataplane.portal.replica_states("rep-1")
    assert states[-2:] == [ReplicaState.READY, ReplicaState.DRAINING]


@pytest.mark.thorough
def test_a_replica_with_a_wrong_golden_prediction_never_becomes_ready(dataplane: Plane) -> None:
    golden = GoldenPrediction(request={"inputs": [[1, 2, 3, 4]]}, predictions=[[20.0, 21.0]])
    replica = dataplane.replica(golden=[golden], wait=False)
    assert replica.process.child.wait(30) == 3
    report = eventually(lambda: dataplane.portal.replicas.get("rep-1", [None])[-1])
    assert report.state == ReplicaState.FAILED
    assert "[0][1] is 20.0; 21.0 was expected" in report.reason


@pytest.mark.thorough
def test_a_prediction_can_be_queried_within_five_seconds(dataplane: Plane) -> None:
    replica = dataplane.replica()
    dataplane.start_gateway()
    dataplane.serve(replica, capture="strict")
    began = time.monotonic()
    answer = dataplane.predict([[1, 2, 3, 4]])
    name = answer.headers["x-slipway-prediction-id"]
    eventually(lambda: name in captured(dataplane), within_s=5)
    assert time.monotonic() - began < 5
    files = str(dataplane.predictions_dir / "*/*/*.parquet")
    query = "SELECT * EXCLUDE (answered_at) FROM read_parquet(?, hive_partitioning = true)"
    table = duckdb.execute(query, [files])
    columns = [column[0] for column in table.description or ()]
    row: dict[str, Any] = dict(zip(columns, table.fetchall()[-1], strict=True))
    assert json.loads(row["request"]) == {"inputs": [[1, 2, 3, 4]]}
    assert json.loads(row["response"]) == answer.json()
    assert row["endpoint"] == "ep-1"
    assert (row["revision"], row["model_version"]) == ("rev-1", "1")
    assert (row["key_id"], row["contract"]) == ("key-1", "scoring")
    assert row["latency_us"] > 0
