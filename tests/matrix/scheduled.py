"""Schedules of each tenant, of the job that its node runs: at times, and by a webhook."""

from portal.pipelines.services.schedules import create_schedule
from portal.pipelines.services.triggers import create_hook
from portal.workloads.models import Workload
from slipway.schemas.schedules import ScheduleIn
from slipway.schemas.triggers import TriggerIn


def make_schedule(job_id: str) -> str:
    """Schedule the job in the name of its submitter. Returns the name."""
    workload = Workload.objects.select_related("project", "submitted_by").get(pk=job_id)
    by = workload.submitted_by
    requested = ScheduleIn(name=f"nightly-of-{by.name.lower()}", cron="0 2 * * *", job=job_id)
    return create_schedule(project=workload.project, by=by, requested=requested).name


def make_webhook(job_id: str) -> str:
    """Schedule the job in the name of its submitter, by a webhook. Returns the secret."""
    workload = Workload.objects.select_related("project", "submitted_by").get(pk=job_id)
    by = workload.submitted_by
    trigger = TriggerIn(event="webhook")
    requested = ScheduleIn(name=f"called-by-{by.name.lower()}", trigger=trigger, job=job_id)
    return create_hook(
        schedule=create_schedule(project=workload.project, by=by, requested=requested)
    )
