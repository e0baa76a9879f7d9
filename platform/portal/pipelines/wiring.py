"""Notifies people about schedules and pipelines, and advances both as soon as a job ends."""

from portal.accounts.notifications import register_notifications
from portal.accounts.signals import ServiceAccountEnded, service_account_ended
from portal.core.enqueue import enqueue_now
from portal.pipelines.models import ScheduledRun, StepRun
from portal.pipelines.notifications import (
    failed_run_notifications,
    schedule_notifications,
    step_notifications,
)
from portal.pipelines.services.progress import pause_schedules_of
from portal.pipelines.tasks import advance, advance_run
from portal.training.wiring import JOB
from portal.workloads.lifecycle import ENDS
from portal.workloads.signals import WorkloadChanged, workload_changed
from slipway.schemas.accounts import Scope
from slipway.schemas.schedules import ScheduledRunState


def _on_job_ended(news: WorkloadChanged) -> None:
    if news.kind != JOB.name or news.state not in ENDS:
        return
    of_job = ScheduledRun.objects.filter(job=news.workload_id).values("schedule")
    waiting = ScheduledRun.objects.filter(
        schedule__in=of_job, state=ScheduledRunState.WAITING
    ).first()
    if waiting is not None:
        enqueue_now(advance, waiting.schedule_id)
    step = StepRun.objects.filter(job=news.workload_id).only("run_id").first()
    if step is not None:
        enqueue_now(advance_run, step.run_id)


def _on_account_ended(news: ServiceAccountEnded) -> None:
    pause_schedules_of(news.user_id, news.reason)


workload_changed.connect(_on_job_ended)
service_account_ended.connect(_on_account_ended)
register_notifications(Scope.WORKLOADS_READ, schedule_notifications)
register_notifications(Scope.WORKLOADS_READ, step_notifications)
register_notifications(Scope.WORKLOADS_READ, failed_run_notifications)
