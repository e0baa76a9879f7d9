"""Runs follow the jobs they belong to, and artifact sizes are reported to storage accounting."""

import structlog
from django.db import DatabaseError

from portal.experiments.services.artifact_usage import measured
from portal.experiments.services.job_runs import note_state
from portal.storage.usage import register_stored
from portal.workloads.lifecycle import ENDS
from portal.workloads.signals import WorkloadChanged, workload_changed
from slipway.schemas.workloads import WorkloadState

log = structlog.get_logger(__name__)


def _follow(news: WorkloadChanged) -> None:
    if news.kind != "job" or not (news.state in ENDS or news.state == WorkloadState.RUNNING):
        return
    try:
        note_state(news.workload_id)
    except DatabaseError:
        # The task that ends forgotten runs corrects this later.
        log.exception("run_of_job_not_told", workload=news.workload_id)


workload_changed.connect(_follow)
register_stored("artifacts", measured)
