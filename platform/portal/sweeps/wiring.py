"""Advances a sweep as soon as a job of it ends."""

from portal.core.enqueue import enqueue_now
from portal.sweeps.models import Trial
from portal.sweeps.tasks import advance
from portal.training.wiring import JOB
from portal.workloads.lifecycle import ENDS
from portal.workloads.signals import WorkloadChanged, workload_changed


def _on_job_ended(news: WorkloadChanged) -> None:
    if news.kind != JOB.name or news.state not in ENDS:
        return
    trial = Trial.objects.filter(job=news.workload_id).only("sweep_id").first()
    if trial is not None:
        enqueue_now(advance, trial.sweep_id)


workload_changed.connect(_on_job_ended)
