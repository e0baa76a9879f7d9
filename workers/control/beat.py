"""Runs the periodic tasks while this process is the leader."""

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import structlog
from django.db import Error as DatabaseProblem
from django.db import close_old_connections, connection
from prometheus_client import Gauge

from portal.config.celery import app
from portal.config.leader_lock import LeaderLock
from portal.config.schedule import Periods, claim_due, note_tasks
from portal.core.early_runs import run_soon, take_requests, wait_for_requests, wake
from workers.health import Check

log = structlog.get_logger(__name__)
LEADS = Gauge("slipway_beat_leads", "1 while this process runs the periodic tasks.")

_TICK_S = 1.0
_THREADS = 4


class Beat:
    """A thread that competes for leadership and, as the leader, runs the tasks that are due.

    The tasks run in this process rather than through the broker: they recover lost messages, so
    they must not depend on messages themselves. Each runs at most once at a time.
    """

    def __init__(self, office: LeaderLock, periods: Periods) -> None:
        self._office = office
        self._periods = periods
        self._noted = False
        self._leads = False
        self._problem = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="beat", daemon=True)
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="periodic")
        self._running: dict[str, Future[None]] = {}

    def start(self) -> None:
        """Start to compete for leadership. Returns immediately."""
        self._thread.start()

    def stop(self) -> None:
        """Leave the office to another process at once."""
        self._stopping.set()
        wake()
        self._thread.join(timeout=2)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def check(self) -> Check:
        """Return healthy while the thread lives and the database responds, leader or not."""
        if self._problem:
            return Check(False, self._problem)
        return Check(self._thread.is_alive(), "leads" if self._leads else "is on standby")

    def _run(self) -> None:
        while True:
            try:
                self._tick()
                self._problem = ""
            except Exception as error:
                # The next tick may succeed, whatever the error is. Ending the loop would be worse.
                self._set_leads(leads=False)
                if not self._problem:
                    log.exception("beat_failed")
                self._problem = f"{type(error).__name__}: {error}"[:200]
            finally:
                close_old_connections()
            if self._rest():
                break
        try:
            self._office.resign()
        except DatabaseProblem:
            log.warning("beat_resign_failed")  # its lease runs out by itself
        connection.close()

    def _tick(self) -> None:
        self._set_leads(leads=self._office.acquire_or_renew())
        if not self._leads:
            return
        if not self._noted:
            note_tasks(self._periods)
            self._noted = True
        for name in claim_due(self._periods):
            self._begin(name)

    def _rest(self) -> bool:
        """Wait until the next tick. Run what is asked for, once each. Return True to stop."""
        until = time.monotonic() + _TICK_S
        begun: set[str] = set()
        later: set[str] = set()
        while (left_s := until - time.monotonic()) > 0 and not self._stopping.is_set():
            wait_for_requests(left_s)
            for name in take_requests() if self._leads else ():
                # A run that has begun may have passed what the request is about.
                if name not in begun and self._begin(name):
                    begun.add(name)
                else:
                    later.add(name)
        for name in later:
            run_soon(name)
        return self._stopping.is_set()

    def _begin(self, name: str) -> bool:
        """Run a task unless it runs. Return True if it was begun."""
        before = self._running.get(name)
        if before is not None and not before.done():
            return False
        self._running[name] = self._threads.submit(_run, name)
        return True

    def _set_leads(self, *, leads: bool) -> None:
        if leads != self._leads:
            log.info("beat_leads" if leads else "beat_stands_by")
        self._leads = leads
        LEADS.set(int(leads))


def _run(name: str) -> None:
    try:
        app.tasks[name].apply()  # logs what the task raises
    finally:
        close_old_connections()
