"""Agents and gateways wait at a real portal until there is something new, and are told at once."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx
import psycopg
import pytest

from tests.live import ROOT, LivePortal
from tests.portal.workloads.machines import facts
from tests.processes import wait_for

pytestmark = pytest.mark.postgres

PATIENCE = httpx.Timeout(40.0)


# Runs beside the portal, on its database: makes join tokens and changes what nodes should run.
_BESIDE = """
import sys, time
from portal.compute.models import Node
from portal.compute.services.node_registration import create_join_token
from portal.endpoints.models import ServingVersion
from portal.endpoints.services.gateways import admit_gateway
for line in sys.stdin:
    verb, name = line.split()
    if verb == "gateway":
        result = admit_gateway(name=name).secret
    elif verb == "serve":
        ServingVersion.objects.raise_version()
        result = time.time()
    elif verb == "token":
        result = create_join_token(by=None, node=name).secret
    else:
        Node.objects.wake(Node.objects.filter(name=name).values_list("pk", flat=True))
        result = time.time()
    print("said", result, flush=True)
"""


class Beside:
    """Another process on the portal's database."""

    def __init__(self, portal: LivePortal) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "shell", "--no-imports", "-c", _BESIDE],
            cwd=ROOT,
            env=portal.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, verb: str, name: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{verb} {name}\n")
        self.process.stdin.flush()
        answer = next(line for line in self.process.stdout if line.startswith("said "))
        return answer.split()[1]

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def beside(portal: LivePortal) -> Iterator[Beside]:
    made = Beside(portal)
    yield made
    made.end()


@dataclass
class Waiting:
    """A request under way in a thread of its own."""

    url: str
    token: str
    seen: int
    wait_s: float = 20.0
    answer: httpx.Response | None = None
    answered_at: float = 0.0
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def _ask(self) -> None:
        self.answer = ask(self.url, self.token, self.seen, self.wait_s)
        self.answered_at = time.time()


def ask(url: str, token: str, seen: int, wait_s: float) -> httpx.Response:
    return httpx.get(
        f"{url}/api/agent/v1/desired",
        params={"seen": seen, "wait_s": wait_s},
        headers={"Authorization": f"Bearer {token}"},
        timeout=PATIENCE,
    )


@pytest.fixture(scope="module")
def joined(portal: LivePortal, beside: Beside) -> dict[str, str]:
    """The tokens of two nodes."""
    tokens = {}
    for name in ("one", "two"):
        secret = beside.ask("token", name)
        body = {"join_token": secret, "name": name, "facts": facts().model_dump()}
        answer = httpx.post(f"{portal.url}/api/agent/v1/join", json=body, timeout=PATIENCE)
        assert answer.status_code == 201, answer.text
        tokens[name] = answer.json()["node_token"]
    return tokens


@pytest.mark.thorough
def test_all_who_wait_for_a_node_hear_of_a_change_at_once_and_the_others_do_not(
    portal: LivePortal, joined: dict[str, str], beside: Beside
) -> None:
    seen = {name: ask(portal.url, joined[name], 0, 0).json()["version"] for name in joined}
    polls = [Waiting(portal.url, joined["one"], seen["one"]) for _ in range(3)]
    other = Waiting(portal.url, joined["two"], seen["two"], wait_s=4.0)
    wait_for(lambda: all(waiting.thread.is_alive() for waiting in polls), "requests under way")
    committed = float(beside.ask("wake", "one"))
    for waiting in polls:
        waiting.thread.join(30)
        assert waiting.answer is not None
        assert waiting.answer.json()["version"] == seen["one"] + 1
        # 50 ms on a machine of its own; this one runs other tests beside.
        assert waiting.answered_at - committed < 1.0
    assert other.thread.is_alive()
    other.thread.join(30)
    answer = other.answer
    assert answer is not None
    assert answer.json()["version"] == seen["two"]


@pytest.mark.thorough
def test_who_waits_hardly_asks_postgresql_anything(
    portal: LivePortal, joined: dict[str, str]
) -> None:
    url = portal.environment.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        pytest.skip("SQLite counts no transactions; what it is asked costs microseconds")
    version = ask(portal.url, joined["two"], 0, 0).json()["version"]
    with psycopg.connect(url, autocommit=True) as database:
        before = _transactions(database)
        for _ in range(2):
            answer = ask(portal.url, joined["two"], version, 5.0)
            assert answer.json()["version"] == version
        # A look forty times a second was four hundred of them.
        assert _transactions(database) - before < 150


@pytest.mark.thorough
def test_a_change_is_heard_although_the_connection_that_listens_was_cut(
    portal: LivePortal, joined: dict[str, str], beside: Beside
) -> None:
    url = portal.environment.get("DATABASE_URL", "")
    if not url.startswith("postgres"):
        pytest.skip("nothing listens on SQLite")
    seen = ask(portal.url, joined["one"], 0, 0).json()["version"]
    with psycopg.connect(url, autocommit=True) as database:
        for round_number in (1, 2):
            poll = Waiting(portal.url, joined["one"], seen)
            wait_for(lambda: _listening(database), "a connection that listens")
            if round_number == 1:
                for pid in _listening(database):
                    database.execute("SELECT pg_terminate_backend(%s)", [pid])
            beside.ask("wake", "one")
            poll.thread.join(30)
            assert poll.answer is not None
            assert poll.answer.json()["version"] == seen + 1
            seen += 1


def _listening(database: psycopg.Connection[tuple[int]]) -> list[int]:
    rows = database.execute(
        "SELECT pid FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name = 'slipway notifications'"
    )
    return [row[0] for row in rows.fetchall()]


def _transactions(database: psycopg.Connection[tuple[int]]) -> int:
    """Return how many the database has ended; each statement by itself is one."""
    row = database.execute(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database"
        " WHERE datname = current_database()"
    ).fetchone()
    assert row is not None
    return row[0]


def test_a_wait_ends_in_time_with_what_there_is(portal: LivePortal, joined: dict[str, str]) -> None:
    version = ask(portal.url, joined["two"], 0, 5).json()["version"]
    began = time.monotonic()
    assert ask(portal.url, joined["two"], version, 0.5).json()["version"] == version
    assert 0.45 < time.monotonic() - began < 10
    assert ask(portal.url, joined["two"], version - 1, 20).status_code == 200


@pytest.mark.parametrize(
    ("token", "query", "status"),
    [
        ("sln_" + "x" * 43, "seen=0&wait_s=20", 401),
        ("nonsense", "seen=0&wait_s=20", 401),
        ("-", "seen=soon&wait_s=20", 401),
        (None, "seen=soon&wait_s=20", 422),
        (None, "seen=0&wait_s=nan", 422),
        (None, "seen=0&wait_s=inf", 422),
        (None, "seen=-1&wait_s=20", 422),
    ],
)
def test_strangers_and_bad_questions_are_answered_at_once(
    portal: LivePortal, joined: dict[str, str], token: str | None, query: str, status: int
) -> None:
    secret = joined["one"] if token is None else token
    began = time.monotonic()
    answer = httpx.get(
        f"{portal.url}/api/agent/v1/desired?{query}",
        headers={"Authorization": f"Bearer {secret}"},
        timeout=PATIENCE,
    )
    assert (answer.status_code, time.monotonic() - began < 10) == (status, True)
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.thorough
def test_a_client_that_leaves_is_forgotten(portal: LivePortal, joined: dict[str, str]) -> None:
    version = ask(portal.url, joined["two"], 0, 0).json()["version"]
    for _ in range(6):
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(
                f"{portal.url}/api/agent/v1/desired",
                params={"seen": version, "wait_s": 30},
                headers={"Authorization": f"Bearer {joined['two']}"},
                timeout=httpx.Timeout(5.0, read=0.3),
            )

    def is_held() -> bool:
        """A fresh request is held again, so those that left do not count any more."""
        began = time.monotonic()
        ask(portal.url, joined["two"], version, 1.0)
        return time.monotonic() - began > 0.9

    wait_for(is_held, "place for one who waits", within_s=20)


def test_a_gateway_that_waits_hears_of_a_change_at_once(portal: LivePortal, beside: Beside) -> None:
    with httpx.Client(
        base_url=f"{portal.url}/api/gateway/v1",
        headers={"Authorization": f"Bearer {beside.ask('gateway', 'edge')}"},
        timeout=PATIENCE,
    ) as gateway:
        etag = gateway.get("/snapshot").headers["ETag"]
        same = gateway.get("/snapshot", params={"wait_s": 0.3}, headers={"If-None-Match": etag})
        assert (same.status_code, same.elapsed.total_seconds() >= 0.28) == (304, True)
        heard: list[tuple[httpx.Response, float]] = []

        def wait() -> None:
            answer = gateway.get(
                "/snapshot", params={"wait_s": 20}, headers={"If-None-Match": etag}
            )
            heard.append((answer, time.time()))

        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        assert waiting.is_alive()
        committed = float(beside.ask("serve", "now"))
        waiting.join(30)
    answer, at = heard[0]
    assert answer.json()["version"] == int(etag.strip('"')) + 1
    # 100 ms on a machine of its own; this one runs other tests beside.
    assert at - committed < 1.0
