"""Ringing: after the commit, bounded, and out of the way when the broker is dead."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

from portal.accounts.tasks import deliver_due_mail
from portal.config.env import env
from portal.core import enqueue
from portal.core.enqueue import Breaker, enqueue_now, enqueue_on_commit

pytestmark = pytest.mark.postgres


class Bell:
    """A task of which the test decides whether the broker takes it."""

    name = "tests.bell"

    def __init__(self, *, broken: bool = False, lasts_s: float = 0.0) -> None:
        self.broken = broken
        self.lasts_s = lasts_s
        self.rung: list[tuple[str, ...]] = []
        self.tried = 0

    def __call__(self, *ids: str) -> None:
        raise AssertionError("a doorbell is rung, not run")

    def apply_async(self, args: tuple[str, ...], *, retry: bool) -> None:
        assert not retry
        self.tried += 1
        time.sleep(self.lasts_s)
        if self.broken:
            raise OperationalError("no broker")
        self.rung.append(args)


@pytest.fixture(autouse=True)
def _own_breaker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enqueue, "_breaker", Breaker(rest_s=0.3))


@pytest.mark.django_db(transaction=True)
def test_a_bell_rings_after_the_commit_and_not_after_a_rollback() -> None:
    bell = Bell()
    with transaction.atomic():
        enqueue_on_commit(bell, "usr_1")
        assert bell.rung == []
    assert bell.rung == [("usr_1",)]
    with transaction.atomic():
        enqueue_on_commit(bell, "usr_2")
        transaction.set_rollback(True)
    assert bell.rung == [("usr_1",)]


def test_a_dead_broker_is_swallowed_and_then_left_alone_for_a_while() -> None:
    bell = Bell(broken=True)
    assert [enqueue_now(bell) for _ in range(5)] == [False] * 5
    assert bell.tried == 1


def test_after_the_rest_one_caller_tries_and_a_success_lets_all_in() -> None:
    bell = Bell(broken=True)
    enqueue_now(bell)
    time.sleep(0.35)
    enqueue_now(bell)
    enqueue_now(bell)
    assert bell.tried == 2
    bell.broken = False
    time.sleep(0.35)
    assert [enqueue_now(bell) for _ in range(3)] == [True] * 3


def test_many_rings_at_a_slow_broker_do_not_queue_up_behind_each_other() -> None:
    bell = Bell(broken=True, lasts_s=1.0)
    began = time.monotonic()
    with ThreadPoolExecutor(40) as pool:
        assert not any(pool.map(lambda _: enqueue_now(bell), range(40)))
    assert time.monotonic() - began < 1.9
    assert bell.tried <= 8


def test_every_thread_rings_at_our_redis_and_not_at_a_default_broker() -> None:
    """Celery's current app is a matter of one thread; a request is served in another."""
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(current_app.conf.broker_url))
    thread.start()
    thread.join()
    assert seen == [env().redis]
    assert deliver_due_mail.name == "accounts.deliver_due_mail"
