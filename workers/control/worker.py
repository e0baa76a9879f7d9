"""The control worker: a Celery worker, a beat with leader election, and a health server."""

import logging
import os
import secrets
import socket
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import structlog
from celery import signals
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning

from portal.config.celery import TASK_LIMIT_S, app
from portal.config.env import env
from portal.config.keyfiles import metrics_token
from portal.config.leader_lock import LeaderLock
from portal.config.schedule import declared_periods
from portal.config.supervision.probes import ALIVE_FILE
from workers.control.beat import Beat
from workers.control.checks import BrokerCheck, check_database
from workers.control.watch import TaskWatch
from workers.health import Check, HealthServer

log = structlog.get_logger(__name__)
CONCURRENCY = 4
_REFUSED = 2


def _disable_celery_logging(**_: Any) -> None:
    """Being connected is enough: Celery then leaves the logging alone."""


def _quiet_celery() -> None:
    # One line per message would hide all others. Failures are errors, and still logged.
    for name in ("celery.worker.strategy", "celery.app.trace", "celery.redirected"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # The warning about root concerns pickled messages, but we accept only JSON. The other one
    # announces a default of a later version.
    for category in (SecurityWarning, CPendingDeprecationWarning):
        warnings.filterwarnings("ignore", category=category)


class _Readiness:
    """Readiness of the worker: true once it consumes messages."""

    def __init__(self) -> None:
        self.since: float | None = None

    def begin(self, **_: Any) -> None:
        self.since = time.monotonic()

    def check(self) -> Check:
        return Check(self.since is not None, "accepts messages" if self.since else "is starting")


def main() -> int:
    """Run until SIGTERM and return the exit status."""
    _quiet_celery()
    settings = env()
    watch = TaskWatch(limit_s=TASK_LIMIT_S, alive_file=os.environ.get(ALIVE_FILE, ""))
    readiness = _Readiness()
    holder = f"{socket.gethostname()[:40]}:{os.getpid()}:{secrets.token_hex(4)}"
    beat = Beat(LeaderLock("beat", holder), declared_periods())
    checks: dict[str, Callable[[], Check]] = {
        "database": check_database,
        "broker": BrokerCheck(settings.redis),
        "worker": readiness.check,
        "beat": beat.check,
    }
    try:
        server = HealthServer(
            settings.control_health_port, checks, token=metrics_token(settings.keys_dir)
        )
    except OSError as error:
        sys.stderr.write(
            f"slipway: port {settings.control_health_port} cannot be opened ({error.strerror}); "
            "set SLIPWAY_CONTROL_HEALTH_PORT to a free one.\n"
        )
        return _REFUSED
    signals.setup_logging.connect(_disable_celery_logging, weak=False)
    signals.worker_ready.connect(readiness.begin, weak=False)
    watch.connect()
    server.start()
    beat.start()
    worker = app.Worker(
        pool="threads",
        concurrency=CONCURRENCY,
        hostname=f"control-{os.getpid()}@{socket.gethostname()}",
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    try:
        worker.start()
    finally:
        beat.stop()
        server.stop()
    return int(worker.exitcode or 0)
