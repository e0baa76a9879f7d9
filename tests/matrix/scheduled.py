"""A schedule of each tenant, of the job that its node runs."""

from portal.pipelines.services.schedules import create_schedule
from portal.workloads.models import Workload
from slipway.schemas.schedules import ScheduleIn


def make_schedule(job_id: str) -> str:
    """Schedule the job in the name of its submitter. Returns the name."""
    workload = Workload.objects.select_related("project", "submitted_by").get(pk=job_id)
    by = workload.submitted_by
    requested = ScheduleIn(name=f"nightly-of-{by.name.lower()}", cron="0 2 * * *", job=job_id)
    return create_schedule(project=workload.project, by=by, requested=requested).name
