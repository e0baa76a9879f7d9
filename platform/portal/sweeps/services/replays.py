"""Rows of Optuna studies and their trials, from the logs of their storages.

Runs in the control worker, which retains the replays of the storages used last: the next entries
are replayed without the earlier ones. Without a replay, after a restart, it starts from entry 0 and
writes what is new.
"""

from collections.abc import Sequence
from threading import Lock

import structlog
from django.db import transaction
from django.db.models import Count, Q

from portal.sweeps.factories import study_replay
from portal.sweeps.models import OptunaLogEntry, OptunaStorage, OptunaStudy, OptunaTrial
from portal.sweeps.ports import LoggedEntry, Replayed, ReplayedStudy, ReplayedTrial, StudyReplay
from slipway.schemas.studies import OptunaTrialState
from slipway.schemas.truncation import shorten

log = structlog.get_logger(__name__)
_BATCH = 2000
# Bounds of the memory that replays take.
_MOST_REPLAYS = 20
_MOST_ENTRIES = 400_000
_MOST_PARAMETERS = 200
_TRIAL_COLUMNS = (
    *("state", "values", "value", "measured", "job"),
    *("started_at", "ended_at"),
)
_replays: dict[str, StudyReplay] = {}
_lock = Lock()


def replay_all() -> int:
    """Replay the new entries of all storages. Return the number of storages that had some.

    One thread at a time does so: a second one returns at once.
    """
    if not _lock.acquire(blocking=False):
        return 0
    try:
        _forget_deleted()
        storages = list(OptunaStorage.objects.to_replay().order_by("pk"))
        for storage in storages:
            try:
                _replay(storage)
            except Exception:
                _replays.pop(storage.pk, None)
                if _is_live(storage):
                    log.exception("optuna_storage_not_replayed", storage=storage.pk)
        return len(storages)
    finally:
        _lock.release()


def forget_replays() -> None:
    """Drop the replays, as a restart does."""
    with _lock:
        _replays.clear()


def _forget_deleted() -> None:
    if _replays:
        live = OptunaStorage.objects.live().filter(pk__in=list(_replays))
        for key in set(_replays).difference(live.values_list("pk", flat=True)):
            del _replays[key]


def _is_live(storage: OptunaStorage) -> bool:
    return OptunaStorage.objects.live().filter(pk=storage.pk).exists()


def _replay(storage: OptunaStorage) -> None:
    replay = _replays.pop(storage.pk, None)
    if replay is None or replay.length > storage.length:
        replay = study_replay()
    while replay.length < storage.length:
        entries = _entries(storage, replay.length)
        if not entries or not _is_live(storage):
            # Deleted storages lose their entries, so some of them may be missing.
            return
        try:
            changes = replay.apply(entries, saved=storage.replayed)
        except Exception as error:
            log.exception("optuna_entry_not_replayed", storage=storage.pk, entry=replay.length - 1)
            reason = f"Entry {replay.length - 1} cannot be replayed: {type(error).__name__}."
            OptunaStorage.objects.filter(pk=storage.pk).update(replay_error=shorten(reason, 500))
            return
        if replay.length > storage.replayed:
            _save(storage, changes, replay.length)
    _replays[storage.pk] = replay
    while len(_replays) > 1 and (
        len(_replays) > _MOST_REPLAYS
        or sum(each.length for each in _replays.values()) > _MOST_ENTRIES
    ):
        del _replays[next(iter(_replays))]


def _entries(storage: OptunaStorage, first: int) -> list[LoggedEntry]:
    rows = OptunaLogEntry.objects.filter(storage=storage, number__gte=first).order_by("number")
    values = rows.values_list("number", "text", "job_id", "created_at")[:_BATCH]
    return [LoggedEntry(*row) for row in values]


def _save(storage: OptunaStorage, changes: Replayed, length: int) -> None:
    """Write studies and trials as they are after `length` entries, or nothing of them."""
    with transaction.atomic():
        here = OptunaStorage.objects.live().filter(pk=storage.pk, replayed=storage.replayed)
        if not here.update(replayed=length):
            transaction.set_rollback(True)
            raise LookupError("another process has replayed or deleted this storage")
        OptunaStudy.objects.filter(storage=storage).exclude(number__in=changes.existing).delete()
        rows = {row.number: row for row in OptunaStudy.objects.filter(storage=storage)}
        for study in changes.studies:
            rows[study.number] = _saved_study(storage, study, rows.get(study.number))
        _save_trials(changes.trials, rows)
        for study in changes.studies:
            _count(rows[study.number])
    storage.replayed = length


def _saved_study(
    storage: OptunaStorage, study: ReplayedStudy, row: OptunaStudy | None
) -> OptunaStudy:
    if row is None:
        row = OptunaStudy(storage=storage, number=study.number, name=study.name)
        row.created_at = study.changed_at
    parameters = row.parameters | dict(study.parameters)
    row.parameters = dict(list(parameters.items())[:_MOST_PARAMETERS])
    row.goals, row.changed_at = list(study.goals), study.changed_at
    row.save()
    return row


def _save_trials(trials: Sequence[ReplayedTrial], studies: dict[int, OptunaStudy]) -> None:
    OptunaTrial.objects.bulk_create(
        [
            OptunaTrial(
                study=studies[trial.study],
                number=trial.number,
                state=trial.state,
                values=dict(trial.values),
                value=trial.measured[0] if trial.measured else None,
                measured=list(trial.measured),
                job_id=trial.job,
                started_at=trial.started_at,
                ended_at=trial.ended_at,
            )
            for trial in trials
        ],
        batch_size=200,
        update_conflicts=True,
        unique_fields=["study", "number"],
        update_fields=_TRIAL_COLUMNS,
    )


def _count(study: OptunaStudy) -> None:
    """Count the trials of a study, and find the best."""
    trials = OptunaTrial.objects.filter(study=study)
    counts = trials.aggregate(
        all=Count("pk"), running=Count("pk", filter=Q(state=OptunaTrialState.RUNNING))
    )
    study.trials, study.running = counts["all"], counts["running"]
    study.best = study.best_value = None
    if len(study.goals) == 1:
        complete = trials.filter(state=OptunaTrialState.COMPLETE, value__isnull=False)
        order = "-value" if study.goals[0] == "max" else "value"
        best = complete.order_by(order, "number").values_list("number", "value").first()
        if best is not None:
            study.best, study.best_value = best
    study.save(update_fields=["trials", "running", "best", "best_value"])
