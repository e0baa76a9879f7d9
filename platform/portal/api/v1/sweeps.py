"""Operations on sweeps."""

from collections.abc import Mapping

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, SearchParameters, page_of
from portal.core.pagination import Page, paginate
from portal.sweeps.fronts import front_of
from portal.sweeps.gates import SweepRole, gated_sweep
from portal.sweeps.models import Sweep, Trial
from portal.sweeps.services import repeats
from portal.sweeps.services import sweeps as services
from portal.sweeps.services.quotes import quote_sweep as price_sweep
from portal.sweeps.services.repeats import Repeats, repeats_of
from portal.sweeps.summaries import SweepSummary, summaries_of
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.sweeps import (
    MAX_ON_FRONT,
    BestTrial,
    FrontOut,
    RepeatGroup,
    RepeatIn,
    RepeatOut,
    RepeatsOut,
    SweepExtension,
    SweepIn,
    SweepOut,
    SweepQuote,
    TrialOut,
    TrialState,
)

router = Router(tags=["Sweeps"])
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SEE_ALL = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)
_SEE = SweepRole(Role.VIEWER, Scope.WORKLOADS_READ)
_CHANGE = SweepRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SWEEP = "/projects/{project}/sweeps/{sweep}"


def _out(sweep: Sweep, summary: SweepSummary) -> SweepOut:
    counts, best = summary.counts, summary.best
    return SweepOut(
        id=sweep.pk,
        project=sweep.project.slug,
        name=sweep.name,
        state=sweep.status,
        explanation=sweep.explanation,
        next_step=sweep.next_step or None,
        algorithm=sweep.algorithm,
        metric=sweep.objective,
        other_metrics=sweep.objectives[1:],
        constraints=sweep.bounds,
        warm_start=sweep.warm_start,
        warm_start_note=sweep.warm_start_note,
        parameters=sweep.parameters,
        script=sweep.job["script"],
        tier=sweep.job["tier"],
        trials=sweep.trials,
        parallel=sweep.parallel,
        retries=sweep.retries,
        seed=sweep.seed,
        scheduler=sweep.scheduler,
        min_values=sweep.min_values,
        eta=sweep.eta,
        started=sweep.started,
        running=counts.get(TrialState.RUNNING, 0),
        complete=counts.get(TrialState.COMPLETE, 0),
        failed=counts.get(TrialState.FAILED, 0),
        stopped=counts.get(TrialState.STOPPED, 0),
        pruned=counts.get(TrialState.PRUNED, 0),
        infeasible=summary.infeasible,
        best=_best(best) if best is not None else None,
        cost_nano_usd=summary.cost_nano_usd,
        expected_nano_usd=summary.expected_nano_usd,
        expected_end=summary.expected_end,
        saved_nano_usd=summary.saved_nano_usd,
        importance=dict(sweep.importance_rows),
        importance_of=sweep.importance_of,
        created_by=sweep.created_by.email,
        created_at=sweep.created_at,
        ended_at=sweep.ended_at,
    )


def _best(trial: Trial) -> BestTrial:
    assert trial.value is not None  # noqa: S101  (a check constraint ensures it)
    return BestTrial(
        number=trial.number, value=trial.value, parameters=trial.values, job=trial.job_id
    )


def _trial_out(trial: Trial) -> TrialOut:
    return TrialOut(
        number=trial.number,
        state=trial.status,
        parameters=trial.values,
        value=trial.value,
        other_values=trial.other_values,
        constraint_values=trial.constraint_values,
        is_feasible=trial.is_feasible,
        explanation=trial.explanation,
        job=trial.job_id,
        attempt=trial.attempt,
        created_at=trial.created_at,
        ended_at=trial.ended_at,
    )


def _shown(sweep: Sweep) -> SweepOut:
    """Serialize a sweep, after a change as it is by now."""
    fresh = Sweep.objects.of_project(sweep.project).get(pk=sweep.pk)
    return _out(fresh, summaries_of([fresh])[fresh.pk])


@router.get("/projects/{project}/sweeps", auth=gate(_SEE_ALL), response=PageOf[SweepOut])
def list_sweeps(request: HttpRequest, project: str, query: SearchParameters) -> PageOf[SweepOut]:
    """List the sweeps of a project, newest first."""
    sweeps = Sweep.objects.of_project(gated_project(request))
    if query.q:
        sweeps = sweeps.filter(name__icontains=query.q)
    page: Page[Sweep] = paginate(sweeps, cursor=query.cursor, limit=query.limit)
    summaries: Mapping[str, SweepSummary] = summaries_of(page.items)
    return page_of(page, lambda sweep: _out(sweep, summaries[sweep.pk]))


@router.post("/projects/{project}/sweeps", auth=gate(_RUN), response={201: SweepOut})
def create_sweep(request: HttpRequest, project: str, payload: SweepIn) -> Status[SweepOut]:
    """Start a sweep. Its trials are jobs, submitted within seconds."""
    by = require_principal(request).user
    sweep = services.start_sweep(project=gated_project(request), by=by, requested=payload)
    return Status(201, _shown(sweep))


@router.post("/projects/{project}/sweeps/quote", auth=gate(_RUN), response=SweepQuote)
def quote_sweep(request: HttpRequest, project: str, payload: SweepIn) -> SweepQuote:
    """Get the price of a sweep. Nothing is started, and the snapshot need not be uploaded yet."""
    by = require_principal(request).user
    return price_sweep(project=gated_project(request), by=by, spec=payload)


@router.get(_SWEEP, auth=gate(_SEE), response=SweepOut)
def get_sweep(request: HttpRequest, project: str, sweep: str) -> SweepOut:
    """Get a sweep, with its best trial and its cost so far."""
    return _shown(gated_sweep(request))


@router.get(f"{_SWEEP}/trials", auth=gate(_SEE), response=PageOf[TrialOut])
def list_trials(
    request: HttpRequest, project: str, sweep: str, query: PageParameters
) -> PageOf[TrialOut]:
    """List the trials of a sweep, newest first."""
    trials = Trial.objects.filter(sweep=gated_sweep(request))
    return page_of(paginate(trials, cursor=query.cursor, limit=query.limit), _trial_out)


@router.get(f"{_SWEEP}/front", auth=gate(_SEE), response=FrontOut)
def get_front(request: HttpRequest, project: str, sweep: str) -> FrontOut:
    """Get the Pareto front of a sweep. One with a single metric has its best trials there."""
    row = gated_sweep(request)
    trials = front_of(row)
    return FrontOut(
        metrics=row.objectives,
        count=len(trials),
        trials=[_trial_out(trial) for trial in trials[:MAX_ON_FRONT]],
    )


@router.post(f"{_SWEEP}/pause", auth=gate(_CHANGE), response=SweepOut)
def pause_sweep(request: HttpRequest, project: str, sweep: str) -> SweepOut:
    """Start no further trials until the sweep is resumed. Running trials go on."""
    by = require_principal(request).user
    return _shown(services.pause_sweep(sweep=gated_sweep(request), by=by))


@router.post(f"{_SWEEP}/resume", auth=gate(_CHANGE), response=SweepOut)
def resume_sweep(request: HttpRequest, project: str, sweep: str) -> SweepOut:
    """Go on with a paused sweep, and with those of its jobs that a budget has stopped."""
    by = require_principal(request).user
    return _shown(services.resume_sweep(sweep=gated_sweep(request), by=by))


@router.post(f"{_SWEEP}/extend", auth=gate(_CHANGE), response=SweepOut)
def extend_sweep(
    request: HttpRequest, project: str, sweep: str, payload: SweepExtension
) -> SweepOut:
    """Let a sweep start more trials. A finished one runs again."""
    return _shown(services.extend_sweep(sweep=gated_sweep(request), trials=payload.trials))


@router.post(f"{_SWEEP}/stop", auth=gate(_CHANGE), response=SweepOut)
def stop_sweep(request: HttpRequest, project: str, sweep: str) -> SweepOut:
    """End a sweep for good, and stop its jobs. One that has ended stays unchanged."""
    by = require_principal(request).user
    return _shown(services.stop_sweep(sweep=gated_sweep(request), by=by))


def _repeats_out(sweep: Sweep) -> RepeatsOut:
    return RepeatsOut(groups=[_group_out(group) for group in repeats_of(sweep)])


def _group_out(group: Repeats) -> RepeatGroup:
    assert group.trial.value is not None  # noqa: S101  (it is complete)
    return RepeatGroup(
        trial=group.trial.number,
        parameters=group.trial.values,
        value=group.trial.value,
        mean=group.mean,
        deviation=group.deviation,
        repeats=[
            RepeatOut(
                seed=repeat.row.seed,
                parameter=repeat.row.parameter,
                state=repeat.row.job.workload.state,
                value=repeat.value,
                job=repeat.row.job_id,
            )
            for repeat in group.items
        ],
    )


@router.get(f"{_SWEEP}/repeats", auth=gate(_SEE), response=RepeatsOut)
def list_repeats(request: HttpRequest, project: str, sweep: str) -> RepeatsOut:
    """List the trials that ran again with other seeds, with mean and deviation of their values."""
    return _repeats_out(gated_sweep(request))


@router.post(f"{_SWEEP}/repeats", auth=gate(_CHANGE), response={201: RepeatsOut})
def repeat_trial(
    request: HttpRequest, project: str, sweep: str, payload: RepeatIn
) -> Status[RepeatsOut]:
    """Run a trial again with other seeds: a job for each, submitted at once."""
    row, by = gated_sweep(request), require_principal(request).user
    repeats.repeat_trial(sweep=row, by=by, requested=payload)
    return Status(201, _repeats_out(row))


@router.post(f"{_SWEEP}/repeats/quote", auth=gate(_CHANGE), response=SweepQuote)
def quote_repeats(request: HttpRequest, project: str, sweep: str, payload: RepeatIn) -> SweepQuote:
    """Get the price of running a trial again with other seeds. Nothing is started."""
    row, by = gated_sweep(request), require_principal(request).user
    return repeats.quote_repeats(project=row.project, sweep=row, by=by, requested=payload)
