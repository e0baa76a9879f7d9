"""A sweep of each tenant, of the script that its job runs."""

from portal.sweeps.models import Sweep
from portal.sweeps.services.sweeps import start_sweep
from portal.training.models import Job
from slipway.schemas.sweeps import SweepIn

PARAMETERS = {"lr": {"type": "float", "low": 0.1, "high": 1.0}}
METRIC = {"name": "accuracy", "goal": "max"}


def make_sweep(job_id: str) -> str:
    """Start a sweep like the job, in the name of its submitter. Returns the id."""
    job = Job.objects.select_related("workload__tier", "snapshot").get(pk=job_id)
    workload = job.workload
    body = {
        "name": f"sweep of {workload.submitted_by.name}",
        "job": {
            "snapshot": job.snapshot.digest,
            "script": job.script,
            "tier": workload.tier.slug,
        },
        "parameters": PARAMETERS,
        "metric": METRIC,
    }
    sweep: Sweep = start_sweep(
        project=workload.project, by=workload.submitted_by, requested=SweepIn.model_validate(body)
    )
    return sweep.pk
