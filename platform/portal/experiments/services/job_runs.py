"""The run each job has: made when the job starts, ended as the job ends.

Its id follows from the workload's, so that every process of the job knows it without asking, and
making it twice makes one.
"""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import timedelta

import structlog
from django.conf import settings
from django.db import DatabaseError

from portal.core import clock
from portal.experiments.factories import opener, tracker
from portal.experiments.ports import NewRun, RunDetail
from portal.workloads.lifecycle import ENDS
from portal.workloads.models import Workload
from portal.workloads.ports import registered_kinds
from portal.workloads.tokens import token_of
from slipway.schemas.workloads import WorkloadState

log = structlog.get_logger(__name__)
JOB_TAG = "slipway.job"
_STATUS = {
    WorkloadState.SUCCEEDED: "FINISHED",
    WorkloadState.STOPPED: "KILLED",
    WorkloadState.FAILED: "FAILED",
    WorkloadState.LOST: "FAILED",
}
_OF_STATE = ("state", "ended_at", "kept_until")
_LOOKED_BACK = timedelta(days=2)
_AT_ONCE = 500


def run_id_of(workload_id: str) -> str:
    """Return the id of a workload's run: 32 hex digits, always the same."""
    return hashlib.sha256(f"slipway run\0{workload_id}".encode()).hexdigest()[:32]


def variables_of(
    workload: Workload, *, source: str, tags: Mapping[str, str], params: Mapping[str, str]
) -> dict[str, str]:
    """Create the run of a workload and return the variables that make `mlflow` log to it.

    `params` become parameters of the run; a script that logs one of them replaces its value.

    Where the tables do not answer, the variables are the same and the run is made the next time:
    training goes on, and the client tries again.
    """
    run_id = run_id_of(workload.pk)
    try:
        if not opener().exists(run_id):
            opener().begin(_new_run(workload, run_id, source, tags, params))
    except DatabaseError:
        log.exception("job_run_not_created", workload=workload.pk)
    return {
        "MLFLOW_TRACKING_URI": f"{settings.SLIPWAY_URL}/mlflow",
        "MLFLOW_TRACKING_TOKEN": token_of(workload.pk, workload.epoch),
        "MLFLOW_EXPERIMENT_NAME": workload.name,
        "MLFLOW_RUN_ID": run_id,
        # Not MLFLOW_ENABLE_ASYNC_LOGGING: what a call has returned from would not be stored yet,
        # and lost when the process is killed. Users who set it lose nothing at an orderly end.
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def _new_run(
    workload: Workload,
    run_id: str,
    source: str,
    tags: Mapping[str, str],
    params: Mapping[str, str],
) -> NewRun:
    began = workload.started_at or workload.placed_at or clock.now()
    person = workload.submitted_by
    name = f"{workload.name}-{workload.pk[-6:]}"
    ranks = f"{workload.nodes} x {workload.procs}"
    known = {
        "mlflow.runName": name,
        "mlflow.user": person.email,
        "mlflow.source.name": source,
        "mlflow.source.type": "JOB",
        JOB_TAG: workload.pk,
        "slipway.tier": workload.tier.slug,
        "slipway.ranks": ranks,
        "slipway.environment": workload.environment,
    }
    return NewRun(
        id=run_id,
        project_id=workload.project_id,
        experiment=workload.name,
        name=name,
        user=person.email,
        source=source,
        started_ms=int(began.timestamp() * 1000),
        tags={key: value for key, value in {**known, **tags}.items() if value},
        params=dict(params),
    )


def follow_script(*, project_id: str, workload_id: str, experiment_id: int) -> None:
    """Move the run of a workload to the experiment that its script has set."""
    opener().move(project_id, run_id_of(workload_id), experiment_id)


def run_of(workload: Workload) -> RunDetail | None:
    """Return the run of a workload, None while there is none."""
    return tracker().run(workload.project_id, run_id_of(workload.pk))


def note_state(workload_id: str) -> None:
    """Sync the state of a workload to its run."""
    workload = Workload.objects.filter(pk=workload_id).only(*_OF_STATE).first()
    if workload is None:
        return
    if workload.status in ENDS or workload.is_kept:
        _end([workload])
    elif workload.status == WorkloadState.RUNNING:
        opener().resume(run_id_of(workload_id))


def finish_orphaned_runs() -> int:
    """End runs of ended workloads whose end was not reported, and return their number."""
    ended = Workload.objects.filter(
        kind__in=[kind.name for kind in registered_kinds().values() if kind.has_run],
        state__in=[state.value for state in ENDS],
        ended_at__gte=clock.now() - _LOOKED_BACK,
    )
    recent = list(ended.only(*_OF_STATE).order_by("-ended_at"))
    count = 0
    for at in range(0, len(recent), _AT_ONCE):
        ids = {run_id_of(workload.pk): workload for workload in recent[at : at + _AT_ONCE]}
        count += _end([ids[run_id] for run_id in sorted(opener().unended(list(ids)))])
    return count


def _end(workloads: Sequence[Workload]) -> int:
    return sum(
        opener().end(
            [run_id_of(workload.pk)],
            "FAILED" if workload.is_kept else _STATUS[workload.status],
            ended_ms=int((workload.ended_at or clock.now()).timestamp() * 1000),
        )
        for workload in workloads
    )
