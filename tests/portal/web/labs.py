"""A place to run jobs in, for tests of pages: a machine, a tier, code, and jobs in every state."""

from pathlib import Path
from typing import Any

from portal.accounts.models import Project, User
from portal.training.models import Job
from portal.training.services.jobs import submit_job
from portal.training.services.uploads import ingest_upload
from portal.workloads.models import Lease, Workload
from portal.workloads.scheduling import run_passes
from portal.workloads.services.logs import append_log
from slipway.schemas.training import JobIn
from tests.portal.workloads.machines import leases_of, run

SCRIPT = b"print('hello')\n"


def take_code(project: Project, by: User, script: bytes = SCRIPT) -> str:
    """Upload one script as `train.py`; returns the digest of the snapshot."""
    made = ingest_upload(project=project, by=by, name="train.py", chunks=iter([script]))
    return made.digest


def make_job(project: Project, by: User, **changes: Any) -> Job:
    """Submit a job of one script."""
    fields: dict[str, Any] = {"script": "train.py", "tier": "small"} | changes
    fields.setdefault("snapshot", take_code(project, by))
    return submit_job(project=project, by=by, requested=JobIn.model_validate(fields))


def run_job(job: Job) -> Workload:
    """Let the scheduler place a job and its node say that it runs."""
    run_passes()
    workload = Workload.objects.get(pk=job.pk)
    run(workload)
    return workload


def print_lines(workload: Workload, text: str, *, rank: int = 0, offset: int = 0) -> int:
    """Let a rank print; returns how far its log has come."""
    lease: Lease = leases_of(workload)[rank // workload.procs]
    return append_log(
        node=lease.node,
        task_id=lease.task_id,
        epoch=lease.epoch,
        rank=rank,
        offset=offset,
        pieces=[text.encode()],
    )


def use_store(settings: Any, folder: Path) -> None:
    """Keep code and logs in a folder of the test."""
    settings.SLIPWAY_STORAGE_URL = f"file://{folder / 'blobs'}"
    settings.DATA_DIR = folder
