"""A sweep of each tenant, of the script that its job runs, and a study of Optuna."""

import json

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.core import clock
from portal.sweeps.models import OptunaStorage, OptunaStudy, Sweep
from portal.sweeps.services.storages import append_entries
from portal.sweeps.services.sweeps import start_sweep
from portal.training.models import Job
from slipway.schemas.sweeps import SweepIn

PARAMETERS = {"lr": {"type": "float", "low": 0.1, "high": 1.0}}
_ENTRY = '{"op_code": 0, "worker_id": "w", "study_name": "new", "directions": [1]}'
METRIC = {"name": "accuracy", "goal": "max"}
_SWEEP = "/api/v1/projects/{project}/sweeps/{sweep}"
_LOG = "/api/v1/projects/{project}/optuna-storages/{storage}/log"
# Bodies of requests that need no other object.
SEARCHES: dict[tuple[str, str], dict[str, object]] = {
    ("POST", f"{_SWEEP}/extend"): {"trials": 50},
    ("POST", f"{_SWEEP}/repeats"): {"parameter": "seed"},
    ("POST", f"{_SWEEP}/repeats/quote"): {"parameter": "seed"},
    ("POST", _LOG): {"entries": [_ENTRY]},
}


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


def make_study(*, project: Project, by: User) -> dict[str, str]:
    """Make a storage with a study, which the control worker has replayed."""
    name = f"storage-of-{by.name}".lower()
    title = f"study of {by.name}"
    entry = {"op_code": 0, "worker_id": "w", "study_name": title, "directions": [2]}
    append_entries(project=project, principal=Principal(by), name=name, entries=[json.dumps(entry)])
    storage = OptunaStorage.objects.get(project=project, name=name)
    study = OptunaStudy.objects.create(
        storage=storage,
        number=0,
        name=title,
        goals=["max"],
        changed_at=clock.now(),
    )
    return {"optuna storage": name, "optuna study": study.pk}
