"""Experiments and the trash."""

from typing import Annotated, Literal

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.api.routing import gate
from portal.api.v1.run_serializers import experiment_out
from portal.core.errors import NotFound
from portal.experiments.factories import tracker
from portal.experiments.ports import ExperimentFacts, Stage
from portal.experiments.services import deletion
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import Line
from slipway.schemas.experiments import ExperimentOut, TrashEmptied

router = Router(tags=["Experiments"])
_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_CHANGE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_DESTROY = ProjectRole(Role.MAINTAINER, Scope.EXPERIMENTS_WRITE)
_LARGEST_ID = 2**31 - 1


class ExperimentsQuery(BaseModel):
    """Filters, all of which must match."""

    q: Annotated[Line, Field(max_length=100)] = ""
    stage: Literal["active", "deleted"] = "active"


@router.get("/projects/{project}/experiments", auth=gate(_SEE), response=list[ExperimentOut])
def list_experiments(
    request: HttpRequest, project: str, query: Query[ExperimentsQuery]
) -> list[ExperimentOut]:
    """List the experiments of the project with their number of runs, most recently used first."""
    experiments = tracker().experiments(
        gated_project(request).pk, stage=Stage(query.stage), text=query.q
    )
    return [experiment_out(details) for details in experiments]


@router.delete(
    "/projects/{project}/experiments/{experiment}", auth=gate(_CHANGE), response={204: None}
)
def delete_experiment(request: HttpRequest, project: str, experiment: int) -> Status[None]:
    """Move an experiment with its runs to the trash."""
    deletion.delete_experiment(project=gated_project(request), experiment_id=_known(experiment))
    return Status(204, None)


@router.post(
    "/projects/{project}/experiments/{experiment}/restore",
    auth=gate(_CHANGE),
    response=ExperimentOut,
)
def restore_experiment(request: HttpRequest, project: str, experiment: int) -> ExperimentOut:
    """Restore an experiment from the trash, with the runs deleted along with it."""
    project_row = gated_project(request)
    deletion.restore_experiment(project=project_row, experiment_id=_known(experiment))
    return experiment_out(_shown(project_row.pk, experiment))


@router.post("/projects/{project}/trash/empty", auth=gate(_DESTROY), response=TrashEmptied)
def empty_trash(request: HttpRequest, project: str) -> TrashEmptied:
    """Permanently delete the runs in the trash and orphaned artifacts. Returns what was freed."""
    freed = deletion.empty_trash(project=gated_project(request))
    return TrashEmptied(runs=freed.runs, files=freed.files, size_bytes=freed.size_bytes)


def _known(experiment: int) -> int:
    if not 0 < experiment <= _LARGEST_ID:
        raise NotFound
    return experiment


def _shown(project_id: str, experiment_id: int) -> ExperimentFacts:
    for experiment in tracker().experiments(project_id):
        if experiment.id == experiment_id:
            return experiment
    raise NotFound
