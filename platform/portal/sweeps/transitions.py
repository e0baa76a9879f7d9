"""Moving sweeps and trials from state to state: the only code that writes their `state`.

A move is one guarded UPDATE: the loser of a race changes nothing and gets False.
"""

from typing import Any

from portal.core import clock
from portal.sweeps.lifecycle import check_trial_move, sources
from portal.sweeps.models import Sweep, Trial
from slipway.schemas.sweeps import SweepState, TrialState
from slipway.schemas.truncation import shorten

_OPEN = [SweepState.RUNNING, SweepState.PAUSED]


def move_sweep(
    sweep: Sweep, target: SweepState, *, explanation: str = "", next_step: str = "", **guard: Any
) -> bool:
    """Move a sweep to `target` if its state allows it. Returns whether it did.

    `guard` are further conditions on its row.
    """
    here = Sweep.objects.filter(pk=sweep.pk, state__in=sources(target), **guard)
    changes = {
        "state": target,
        "explanation": shorten(explanation, 500),
        "next_step": shorten(next_step, 300),
        "ended_at": clock.now() if target.has_ended else None,
    }
    if not here.update(**changes):
        return False
    for column, value in changes.items():
        setattr(sweep, column, value)
    return True


def add_trials(sweep: Sweep, trials: int) -> bool:
    """Raise the total of a sweep that has not ended. Returns whether it was lower."""
    here = Sweep.objects.filter(pk=sweep.pk, state__in=_OPEN, trials__lt=trials)
    return bool(here.update(trials=trials))


def run_again(sweep: Sweep, trials: int) -> bool:
    """Let a finished sweep run until it has had `trials` trials. Returns whether it does."""
    here = Sweep.objects.filter(pk=sweep.pk, state=SweepState.FINISHED, trials__lt=trials)
    return bool(
        here.update(
            trials=trials, state=SweepState.RUNNING, ended_at=None, explanation="", next_step=""
        )
    )


def end_trial(trial: Trial, target: TrialState, **changes: Any) -> bool:
    """Record the end of a trial's present attempt. Returns whether it was running till then."""
    check_trial_move(trial.status, target)
    changes["explanation"] = shorten(str(changes.get("explanation", "")), 500)
    here = Trial.objects.running().filter(pk=trial.pk, attempt=trial.attempt)
    return bool(here.update(state=target, ended_at=clock.now(), **changes))


def claim_slot(sweep: Sweep, **changes: Any) -> bool:
    """Hold the right to start one trial until the transaction ends. Returns whether there is one.

    The UPDATE of the sweep, with `changes`, makes others wait that would start a trial as well, so
    that no more than `parallel` run.
    """
    here = Sweep.objects.filter(pk=sweep.pk, state=SweepState.RUNNING, started=sweep.started)
    if not here.filter(trials__gte=changes.get("started", 0)).update(
        **({"started": sweep.started} | changes)
    ):
        return False
    return Trial.objects.running().filter(sweep=sweep).count() < sweep.parallel


def promote_trial(trial: Trial) -> bool:
    """Let a pruned trial run again. Returns whether it was pruned till then."""
    check_trial_move(trial.status, TrialState.RUNNING)
    here = Trial.objects.filter(pk=trial.pk, state=TrialState.PRUNED)
    return bool(here.update(state=TrialState.RUNNING, ended_at=None, value=None, explanation=""))


def start_attempt(trial: Trial, *, job_id: str) -> bool:
    """Give a running trial its next job. Returns whether this attempt was still the last."""
    check_trial_move(trial.status, TrialState.RUNNING)
    here = Trial.objects.running().filter(pk=trial.pk, attempt=trial.attempt)
    return bool(here.update(attempt=trial.attempt + 1, job_id=job_id))
