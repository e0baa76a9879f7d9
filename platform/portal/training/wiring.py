"""Makes jobs a kind of workload, with its environment and what it reports."""

import json
from collections.abc import Mapping

from portal.training.models import Job
from portal.training.services.keeping import keep_report
from portal.workloads.ports import Kind, register_kind
from portal.workloads.retries import RetryRule


def _surroundings(*, workload_id: str, index: int) -> Mapping[str, str]:
    job = Job.objects.filter(pk=workload_id).only("strategy", "params").first()
    if job is None:
        return {}
    params = {"SLIPWAY_PARAMS": json.dumps(job.params)} if job.params else {}
    return params | ({"SLIPWAY_STRATEGY": job.strategy} if job.strategy else {})


JOB = Kind(
    name="job",
    noun="job",
    retry=RetryRule(max_attempts=3),
    moves_when_drained=True,
    stop_grace_s=30.0,
    warm="torch",
    surroundings=_surroundings,
    keep_report=keep_report,
)
register_kind(JOB)
