"""Everybody does everything at once, beside what control does: nobody is ended for another.

PostgreSQL ends one of two who wait for each other, wherever rows are locked in two orders. And what
one has just found, another may take away before it is locked. More rounds than a gate has time for:

    TEST_ROUNDS=50 scripts/with-postgres .venv/bin/python -m pytest PATH_OF_THIS_FILE
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from celery import current_app
from django.db import connection, connections

from portal.config.schedule import declared_periods
from tests.locks import deadlocks
from tests.matrix import table
from tests.matrix.actors import Cast
from tests.matrix.world import make_world, values_for
from tests.routes import Route, routes
from tests.turns import thorough_after

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.django_db(transaction=True, databases=["default", "tracking"]),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="SQLite lets one write at a time"),
]
ROUNDS = int(os.environ.get("TEST_ROUNDS", "2"))
PEOPLE = 6
WORKERS = 2
ROUND_S = 6.0
# Most are about the same thing for so long, where they get into each other's way.
TURN_S = 0.7
ELSEWHERE = 0.15
# A lock is held for up to so long, as on a machine that has much to do.
DAWDLE_S = 0.02
RARE = 0.1
# Nobody is left to act after one of these, or nothing to meet at.
_LAST = ("/archive", "/members", "/leave", "/sessions", "/tokens", "/sign-out", "/password")
_ENDINGS = ("/delete", "/remove", "/archive")
_WRITES = ("INSERT", "UPDATE", "DELETE")
# These send mail, which is done outside of transactions and slowly.
_LEFT_OUT = frozenset({"accounts.deliver_due_mail"})
Doing = tuple[Route, str, str]


def doings() -> dict[str, list[tuple[Doing, float]]]:
    """Return by topic what somebody may do (a route, a verb, a column), and how often it is."""
    known = {route.template: route for route in routes()}
    by_topic: dict[str, list[tuple[Doing, float]]] = {}
    for (template, verb), row in table.read().items():
        weight = _weight(template, verb)
        if verb in ("GET", "HEAD", "OPTIONS") or template not in known or not weight:
            continue
        by_topic.setdefault(topic_of(template), []).extend(
            ((known[template], verb, column), weight)
            for column, cell in row.items()
            if cell.startswith(("2", "302"))
        )
    return {topic: entries for topic, entries in by_topic.items() if entries}


def topic_of(template: str) -> str:
    """Return what an address is about: endpoints, notebooks, members and the like."""
    parts = [part for part in template.split("/") if part not in ("", "api", "v1", "p", "t")]
    return next((part for part in [*parts[1:], *parts] if not part.startswith("{")), "")


def _weight(template: str, verb: str) -> float:
    ends = verb == "DELETE" or template.endswith(_ENDINGS)
    if any(part in template for part in _LAST) or topic_of(template) == "projects":
        return 0.0 if ends else RARE
    return RARE if ends else 1.0


def _dawdle(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    answer = execute(sql, params, many, context)
    if sql.startswith(_WRITES) or " FOR " in sql[-40:]:
        time.sleep(random.random() * DAWDLE_S)  # noqa: S311
    return answer


class Crowd:
    """People, machines and workers who act until the round is over."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.may = doings()
        self.began = time.monotonic()
        self.answers: Counter[int] = Counter()
        self.faults: list[str] = []

    def run(self, casts: list[Cast]) -> None:
        """Let all of them go, and wait for them."""
        acts: list[Callable[[], None]] = [
            *(partial(self._act, cast) for cast in casts),
            *(self._look_after for _ in range(WORKERS)),
        ]
        threads = [threading.Thread(target=self._go, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _go(self, act: Callable[[], None]) -> None:
        try:
            with connection.execute_wrapper(_dawdle):
                while time.monotonic() < self.began + ROUND_S:
                    act()
        except Exception as error:  # noqa: BLE001  (said by the test, for all who met one)
            self.faults.append(repr(error))
        finally:
            connections.close_all()

    def _act(self, cast: Cast) -> None:
        turn = int((time.monotonic() - self.began) / TURN_S)
        topics = sorted(self.may)
        topic = random.Random(f"{self.number} {turn}").choice(topics)  # noqa: S311
        if random.random() < ELSEWHERE:  # noqa: S311
            topic = random.choice(topics)  # noqa: S311
        choices, weights = zip(*self.may[topic], strict=True)
        route, verb, column = random.choices(choices, weights)[0]  # noqa: S311
        values = values_for(route, cast.world.own)
        status = cast.ask(cast.actor(column, route, verb), route, verb, values).status_code
        self.answers[status] += 1
        if status >= 500:
            self.faults.append(f"{verb} {route.template} as {column}: {status}")

    def _look_after(self) -> None:
        name = random.choice(sorted(declared_periods().keys() - _LEFT_OUT))  # noqa: S311
        try:
            current_app.tasks[name]()
        except Exception as error:  # noqa: BLE001  (said by the test, for all who met one)
            self.faults.append(f"{name}: {error!r}")


@pytest.mark.parametrize("number", thorough_after(1, range(ROUNDS)))
def test_nobody_is_ended_for_another(number: int) -> None:
    world = make_world()
    casts = [Cast(world) for _ in range(PEOPLE)]
    before = deadlocks()
    crowd = Crowd(number)
    crowd.run(casts)
    assert not crowd.faults
    assert deadlocks() == before, "see what PostgreSQL has logged"
    assert crowd.answers[200] + crowd.answers[201] + crowd.answers[302] > 10
