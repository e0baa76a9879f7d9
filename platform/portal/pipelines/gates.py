"""Policies of schedules and pipelines: the project's policy, and the object the path names."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject, ProjectRole, gated_project, require_scope
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core.errors import Forbidden, NotFound
from portal.pipelines.models import PipelineRun, ProjectSchedule
from portal.pipelines.services.schedule_templates import pipeline_named
from portal.workloads.models import Workload
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.pipelines import PipelineIn
from slipway.schemas.schedules import ScheduleEdit, ScheduleIn

# Scopes of the operations that these kinds of steps do in the name of the person who pays.
_STEP_SCOPES = {"register": Scope.EXPERIMENTS_WRITE, "promote": Scope.MODELS_PROMOTE}


class ScheduleRole(ProjectObject[ProjectSchedule]):
    """Members of the project with at least `role`, for a schedule of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> ProjectSchedule | None:
        """Return the schedule by its name."""
        return ProjectSchedule.objects.of_project(project).filter(name=path["schedule"]).first()


def gated_schedule(request: HttpRequest) -> ProjectSchedule:
    """Return the schedule the gate let this request reach."""
    return ScheduleRole.stored(request)


class PipelineRunRole(ProjectObject[PipelineRun]):
    """Members of the project with at least `role`, for a run of a pipeline of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> PipelineRun | None:
        """Return the run by its id."""
        return PipelineRun.objects.of_project(project).filter(pk=path["pipeline_run"]).first()


def gated_pipeline_run(request: HttpRequest) -> PipelineRun:
    """Return the run the gate let this request reach."""
    return PipelineRunRole.stored(request)


def require_scopes_of_steps(request: HttpRequest, pipeline: PipelineIn) -> None:
    """Raise Forbidden for a token that may not do itself what the steps of a pipeline do.

    Else a token for jobs alone, such as that of a notebook server, could promote by a pipeline.
    """
    principal = require_principal(request)
    for kind in sorted({step.kind for step in pipeline.steps}):
        require_scope(principal, _STEP_SCOPES.get(kind))


def require_scopes_of_schedule(
    request: HttpRequest,
    *,
    schedule: ProjectSchedule | None = None,
    requested: ScheduleIn | ScheduleEdit | None = None,
) -> None:
    """Raise Forbidden for a token that may not do itself what a schedule is going to do.

    `requested` names what the schedule starts from now on, else it is what `schedule` starts.
    """
    pipeline = None
    if requested is not None:
        pipeline = pipeline_named(gated_project(request), requested)
    if pipeline is None and schedule is not None and schedule.starts_pipelines:
        pipeline = PipelineIn.model_validate(schedule.request["pipeline"])
    if pipeline is not None:
        require_scopes_of_steps(request, pipeline)


@dataclass(frozen=True)
class OwnStep:
    """A job itself, by the token it runs with: nobody else may report outputs of its step."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the workload on the request."""
        ProjectRole(Role.CONTRIBUTOR, Scope.FILES_WRITE).check(request, path)
        workloads = Workload.objects.filter(project=gated_project(request))
        workload = workloads.filter(pk=path["job"]).first()
        if workload is None:
            raise NotFound
        token = require_principal(request).token
        if token is None or token.pk != workload.pk:
            raise Forbidden(
                "Only the job itself can report outputs of its step.",
                code="not_the_job",
                next_step="Run it as a step of a pipeline; the job reports by itself.",
            )
        request.gated_own_step = workload  # type: ignore[attr-defined]

    def describe(self) -> str:
        return "the job itself"


def gated_own_step(request: HttpRequest) -> Workload:
    """Return the workload that speaks for itself."""
    workload: Workload = request.gated_own_step  # type: ignore[attr-defined]
    return workload
