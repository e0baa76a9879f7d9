"""Operations on runs of pipelines."""

from collections.abc import Sequence

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import SearchParameters, page_of
from portal.core.pagination import Page, paginate
from portal.pipelines.gates import (
    OwnStep,
    PipelineRunRole,
    gated_own_step,
    gated_pipeline_run,
    require_scopes_of_steps,
)
from portal.pipelines.models import PipelineRun, StepRun
from portal.pipelines.pipeline_summaries import PipelineSummary, costs_of_steps, summaries_of
from portal.pipelines.services import pipeline_runs as services
from portal.pipelines.services.pipeline_plans import plan_run
from portal.pipelines.services.step_outputs import report_outputs
from portal.registry.services.actors import Actor
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.pipeline_checks import ordered
from slipway.schemas.pipelines import (
    PipelinePlan,
    PipelineRunIn,
    PipelineRunOut,
    StepDecision,
    StepOutputs,
    StepRunOut,
    StepState,
)

router = Router(tags=["Pipelines"])
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SEE_ALL = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_SEE = PipelineRunRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = PipelineRunRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_RUNS = "/projects/{project}/pipelines/runs"
_ONE = "/projects/{project}/pipelines/runs/{pipeline_run}"


def _out(
    run: PipelineRun, summary: PipelineSummary, steps: Sequence[StepRunOut] = ()
) -> PipelineRunOut:
    return PipelineRunOut(
        id=run.pk,
        project=run.project.slug,
        name=run.name,
        state=run.status,
        explanation=run.explanation,
        next_step=run.next_step or None,
        attempt=run.attempt,
        force=run.force,
        parameters=run.parameters,
        snapshot=run.snapshot.digest if run.snapshot is not None else None,
        owner=run.owner.email,
        counts=summary.counts,
        cost_nano_usd=summary.cost_nano_usd,
        pipeline=run.pipeline if steps else None,
        steps=list(steps),
        created_at=run.created_at,
        ended_at=run.ended_at,
    )


def _step_out(row: StepRun, cost_nano_usd: int) -> StepRunOut:
    return StepRunOut(
        step=row.step,
        kind=row.kind,
        item=row.item,
        state=row.status,
        explanation=row.explanation or _explanation_of_sweep(row),
        next_step=row.next_step or None,
        attempt=row.attempt,
        job=row.job_id,
        sweep=row.sweep_id,
        outputs=row.outputs,
        reused_from=row.reused_from.run_id if row.reused_from is not None else None,
        decided_by=row.decided_by.email if row.decided_by is not None else None,
        cost_nano_usd=cost_nano_usd,
        started_at=row.started_at,
        ended_at=row.ended_at,
    )


def _explanation_of_sweep(row: StepRun) -> str:
    """Return why the sweep of a step that runs is paused, "" if it is not."""
    if row.sweep is None or row.status != StepState.RUNNING:
        return ""
    return row.sweep.explanation


def _shown(run: PipelineRun) -> PipelineRunOut:
    """Serialize a run with its steps, after a change as it is by now."""
    fresh = PipelineRun.objects.of_project(run.project).get(pk=run.pk)
    rows = list(
        StepRun.objects.filter(run=fresh).select_related("reused_from", "decided_by", "sweep")
    )
    place = {step.name: number for number, step in enumerate(ordered(fresh.pipeline))}
    rows.sort(key=lambda row: (place[row.step], -1 if row.item is None else row.item))
    costs = costs_of_steps(rows)
    steps = [_step_out(row, costs.get(row.pk, 0)) for row in rows]
    return _out(fresh, summaries_of([fresh])[fresh.pk], steps)


@router.get(_RUNS, auth=gate(_SEE_ALL), response=PageOf[PipelineRunOut])
def list_pipeline_runs(
    request: HttpRequest, project: str, query: SearchParameters
) -> PageOf[PipelineRunOut]:
    """List the runs of pipelines of a project, newest first."""
    runs = PipelineRun.objects.of_project(gated_project(request))
    if query.q:
        runs = runs.filter(name__icontains=query.q)
    page: Page[PipelineRun] = paginate(runs, cursor=query.cursor, limit=query.limit)
    summaries = summaries_of(page.items)
    return page_of(page, lambda run: _out(run, summaries[run.pk]))


@router.post(_RUNS, auth=gate(_RUN), response={201: PipelineRunOut})
def create_pipeline_run(
    request: HttpRequest, project: str, payload: PipelineRunIn
) -> Status[PipelineRunOut]:
    """Start a run of a pipeline. Its first jobs are submitted within seconds."""
    require_scopes_of_steps(request, payload.pipeline)
    by = require_principal(request).user
    run = services.start_run(project=gated_project(request), by=by, requested=payload)
    return Status(201, _shown(run))


@router.post("/projects/{project}/pipelines/plan", auth=gate(_RUN), response=PipelinePlan)
def plan_pipeline_run(request: HttpRequest, project: str, payload: PipelineRunIn) -> PipelinePlan:
    """Get what a run would reuse, and what the rest would cost. Nothing is started."""
    by = require_principal(request).user
    return plan_run(project=gated_project(request), by=by, requested=payload)


@router.get(_ONE, auth=gate(_SEE), response=PipelineRunOut)
def get_pipeline_run(request: HttpRequest, project: str, pipeline_run: str) -> PipelineRunOut:
    """Get a run with its steps, in an order in which they can run."""
    return _shown(gated_pipeline_run(request))


@router.post(f"{_ONE}/cancel", auth=gate(_CHANGE), response=PipelineRunOut)
def cancel_pipeline_run(request: HttpRequest, project: str, pipeline_run: str) -> PipelineRunOut:
    """End a run and its jobs. One that has ended stays unchanged."""
    by = require_principal(request).user
    return _shown(services.cancel_run(run=gated_pipeline_run(request), by=by))


@router.post(f"{_ONE}/resume", auth=gate(_CHANGE), response=PipelineRunOut)
def resume_pipeline_run(request: HttpRequest, project: str, pipeline_run: str) -> PipelineRunOut:
    """Resume a failed or cancelled run. Steps that have succeeded are not done again.

    The caller pays from then on.
    """
    run, by = gated_pipeline_run(request), require_principal(request).user
    require_scopes_of_steps(request, run.pipeline)
    return _shown(services.resume_run(run=run, by=by))


@router.post(f"{_ONE}/steps/{{step}}/decision", auth=gate(_CHANGE), response=PipelineRunOut)
def decide_pipeline_step(
    request: HttpRequest, project: str, pipeline_run: str, step: str, payload: StepDecision
) -> PipelineRunOut:
    """Approve or decline a step that waits for approval."""
    by = Actor.of(require_principal(request))
    run = gated_pipeline_run(request)
    return _shown(services.decide_step(run=run, step=step, by=by, decision=payload))


@router.put(
    "/projects/{project}/pipelines/jobs/{job}/outputs", auth=gate(OwnStep()), response={204: None}
)
def record_step_outputs(
    request: HttpRequest, project: str, job: str, payload: StepOutputs
) -> Status[None]:
    """Store outputs of a step. Only its job may report them."""
    report_outputs(workload=gated_own_step(request), outputs=payload.outputs)
    return Status(204, None)
