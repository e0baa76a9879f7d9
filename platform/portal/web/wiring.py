"""Stores the changes that lower apps signal, for the pages that are open."""

import time
from threading import Lock

from portal.accounts.signals import AccountsChanged, accounts_changed
from portal.compute.signals import NodeChanged, node_changed
from portal.experiments.signals import RunsChanged, runs_changed
from portal.web.models import LiveEvent
from portal.web.streams.auth import INSTALLATION
from portal.workloads.signals import WorkloadChanged, workload_changed

_SWEEP_EVERY_S = 60.0
_sweeping = Lock()
_last_sweep_s = [0.0]


def _write(news: AccountsChanged) -> None:
    _publish(news.topic, news.change)


def _write_workload(news: WorkloadChanged) -> None:
    _publish(news.project_id, "jobs")


def _write_runs(news: RunsChanged) -> None:
    _publish(news.project_id, "runs")


def _write_node(_news: NodeChanged) -> None:
    _publish(INSTALLATION, "nodes")


def _publish(topic: str, what: str) -> None:
    LiveEvent.objects.create(topic=topic, what=what)
    _sweep_if_due()


def _sweep_if_due() -> None:
    """Each write also deletes old rows, so that the table stays small without a process."""
    now_s = time.monotonic()
    with _sweeping:
        if now_s - _last_sweep_s[0] < _SWEEP_EVERY_S:
            return
        _last_sweep_s[0] = now_s
    LiveEvent.objects.expired().delete()


accounts_changed.connect(_write)
workload_changed.connect(_write_workload)
node_changed.connect(_write_node)
runs_changed.connect(_write_runs)
