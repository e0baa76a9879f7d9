"""Moving runs of pipelines and their steps from state to state: the only code that writes it.

A move is one guarded UPDATE: the loser of a race changes nothing and gets False.
"""

from typing import Any

from django.db.models import F

from portal.accounts.models import User
from portal.core import clock
from portal.pipelines.lifecycle import pipeline_sources, step_sources
from portal.pipelines.models import PipelineRun, StepRun
from slipway.schemas.pipelines import PipelineRunState, StepState
from slipway.schemas.truncation import shorten


def end_run(
    run: PipelineRun, target: PipelineRunState, *, explanation: str = "", next_step: str = ""
) -> bool:
    """End a run. Returns whether it went on till then."""
    here = PipelineRun.objects.filter(pk=run.pk, state__in=pipeline_sources(target))
    return bool(
        here.update(
            state=target,
            explanation=shorten(explanation, 500),
            next_step=shorten(next_step, 300),
            ended_at=clock.now(),
        )
    )


def restart_run(run: PipelineRun, *, owner: User) -> bool:
    """Let a failed or cancelled run go on. Returns whether it was one, in the attempt as read."""
    here = PipelineRun.objects.filter(
        pk=run.pk, attempt=run.attempt, state__in=pipeline_sources(PipelineRunState.RUNNING)
    )
    return bool(
        here.update(
            state=PipelineRunState.RUNNING,
            attempt=run.attempt + 1,
            owner=owner,
            explanation="",
            next_step="",
            ended_at=None,
        )
    )


def hold_run(run: PipelineRun) -> bool:
    """Make others that move steps of the run wait until the transaction ends.

    Returns whether the run goes on.
    """
    here = PipelineRun.objects.filter(pk=run.pk, state=PipelineRunState.RUNNING)
    return bool(here.update(started=F("started") + 1))


def move_step(row: StepRun, target: StepState, **changes: Any) -> bool:
    """Move a step, in the state and attempt in which it was read. Returns whether it did."""
    if row.status not in step_sources(target):
        return False
    for name, limit in (("explanation", 1000), ("next_step", 300)):
        if name in changes:
            changes[name] = shorten(str(changes[name]), limit)
    if target.has_ended:
        changes["ended_at"] = clock.now()
    here = StepRun.objects.filter(pk=row.pk, state=row.state, attempt=row.attempt)
    return bool(here.update(state=target, **changes))


def reset_steps(run: PipelineRun, keys: list[str]) -> int:
    """Let steps of a run that is resumed wait again. Returns their number."""
    here = StepRun.objects.filter(run=run, pk__in=keys)
    return here.update(
        state=StepState.WAITING,
        explanation="",
        next_step="",
        digest="",
        outputs={},
        failures=0,
        job=None,
        sweep=None,
        reused_from=None,
        decided_by=None,
        started_at=None,
        ended_at=None,
    )
