"""Work that schedules repeat: a job, a sweep or a pipeline, read and checked when it is saved."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from portal.accounts.models import Project, User
from portal.core.errors import InvalidInput
from portal.pipelines.models import PipelineRun, ProjectSchedule
from portal.pipelines.services.pipeline_starts import run_request, settled_run
from portal.sweeps.models import Sweep
from portal.sweeps.services.sweeps import settled_sweep, sweep_request
from portal.training.models import Job
from portal.training.services.jobs import job_request, settled_job
from slipway.schemas.pipeline_references import PipelineError
from slipway.schemas.pipelines import PipelineIn, PipelineRunIn
from slipway.schemas.schedule_references import sample_parameters
from slipway.schemas.schedules import ScheduleEdit, ScheduleIn


@dataclass(frozen=True)
class Template:
    """The submission that a schedule repeats, and the job, sweep or run that it was read from."""

    request: dict[str, Any]
    job: Job | None = None
    sweep: Sweep | None = None
    pipeline_run: PipelineRun | None = None

    @property
    def pipeline_request(self) -> dict[str, Any] | None:
        """The pipeline that it starts with its parameters, None for a job or a sweep."""
        return self.request if self.job is None and self.sweep is None else None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a schedule that repeats it."""
        return {
            "request": self.request,
            "job_id": self.job and self.job.pk,
            "sweep_id": self.sweep and self.sweep.pk,
            "pipeline_run_id": self.pipeline_run and self.pipeline_run.pk,
        }


def template_of(
    project: Project, by: User, requested: ScheduleIn | ScheduleEdit, event: str
) -> Template:
    """Return what to repeat. Raises InvalidInput for what does not exist or can never run.

    `event` is the kind of event that starts it, "" for times. A job or a sweep is settled, so that
    it means the same each time. The jobs of a pipeline are settled when it starts, as if a person
    ran it again.
    """
    if requested.job is not None or requested.sweep is not None:
        _refuse_parameters(requested.parameters or {})
    if requested.job is not None:
        job = Job.objects.of_project(project).filter(pk=requested.job).first()
        if job is None:
            raise _no_such("job", requested.job, project)
        settled = settled_job(project=project, by=by, requested=job_request(job))
        return Template(settled.model_dump(mode="json"), job=job)
    if requested.sweep is not None:
        sweep = Sweep.objects.of_project(project).filter(pk=requested.sweep).first()
        if sweep is None:
            raise _no_such("sweep", requested.sweep, project)
        search = settled_sweep(project=project, by=by, requested=sweep_request(sweep))
        return Template(search.model_dump(mode="json"), sweep=sweep)
    run = None
    if requested.pipeline is not None:
        start = requested.pipeline
    else:
        run = PipelineRun.objects.of_project(project).filter(pk=requested.pipeline_run).first()
        if run is None:
            raise _no_such("pipeline_run", requested.pipeline_run or "", project)
        start = run_request(run)
    request = _request_of(project, by, start, requested.parameters or {}, event)
    return Template(request, pipeline_run=run)


def with_parameters(
    schedule: ProjectSchedule, by: User, parameters: Mapping[str, Any], event: str
) -> dict[str, Any]:
    """Return the request of a schedule of a pipeline with other parameters.

    Raises InvalidInput for parameters that the pipeline does not have, or of another type.
    """
    if not schedule.starts_pipelines:
        _refuse_parameters(parameters)
        return dict(schedule.request)
    start = PipelineRunIn.model_validate(schedule.request)
    return _request_of(schedule.project, by, start, parameters, event)


def pipeline_named(project: Project, requested: ScheduleIn | ScheduleEdit) -> PipelineIn | None:
    """Return the pipeline that a request names itself or by the id of a run, if there is one."""
    if requested.pipeline is not None:
        return requested.pipeline.pipeline
    if requested.pipeline_run is None:
        return None
    run = PipelineRun.objects.of_project(project).filter(pk=requested.pipeline_run).first()
    return None if run is None else run.pipeline


def _request_of(
    project: Project, by: User, start: PipelineRunIn, parameters: Mapping[str, Any], event: str
) -> dict[str, Any]:
    start = start.model_copy(update={"parameters": {**start.parameters, **parameters}})
    try:
        samples = sample_parameters(start.pipeline, start.parameters, event)
    except PipelineError as error:
        raise InvalidInput(
            error.message, code="bad_reference", field=error.field, next_step=error.next_step
        ) from error
    example = start.model_copy(update={"parameters": samples})
    settled_run(project=project, by=by, requested=example)
    return start.model_dump(mode="json", exclude_unset=True)


def _refuse_parameters(parameters: Mapping[str, Any]) -> None:
    if parameters:
        raise InvalidInput(
            "Only pipelines have parameters that a schedule can set.",
            code="no_parameters",
            field="parameters",
            next_step="Leave them out, or run the job with these parameters and schedule that.",
        )


_NOUNS = {
    "job": ("job", "slipway job list"),
    "sweep": ("sweep", "slipway sweep list"),
    "pipeline_run": ("run of a pipeline", "slipway pipeline list"),
}


def _no_such(kind: str, key: str, project: Project) -> InvalidInput:
    noun, command = _NOUNS[kind]
    return InvalidInput(
        f"There is no {noun} {key} in project {project.slug}.",
        code=f"no_such_{kind}",
        field=kind,
        next_step=f"Name the id of a {noun}, as `{command}` shows it.",
    )
