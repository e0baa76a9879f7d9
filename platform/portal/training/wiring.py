"""Makes jobs a kind of workload."""

from collections.abc import Mapping

from portal.training.models import Job
from portal.workloads.ports import Kind, register_kind
from portal.workloads.retries import RetryRule


def _surroundings(*, workload_id: str, index: int) -> Mapping[str, str]:
    job = Job.objects.filter(workload_id=workload_id).only("strategy").first()
    return {"SLIPWAY_STRATEGY": job.strategy} if job and job.strategy else {}


register_kind(
    Kind(
        name="job",
        noun="job",
        retry=RetryRule(max_attempts=3),
        moves_when_drained=True,
        stop_grace_s=30.0,
        warm="torch",
        surroundings=_surroundings,
    )
)
