"""Replay of the log of an Optuna storage, by Optuna's JournalStorage itself.

Imported by the control worker alone.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from portal.sweeps.ports import LoggedEntry, Replayed, ReplayedStudy, ReplayedTrial
from slipway.schemas.base import forbidden_character
from slipway.schemas.studies import OptunaTrialState
from slipway.schemas.truncation import shorten

optuna.logging.set_verbosity(optuna.logging.ERROR)
_STATES = {
    TrialState.WAITING: OptunaTrialState.WAITING,
    TrialState.RUNNING: OptunaTrialState.RUNNING,
    TrialState.COMPLETE: OptunaTrialState.COMPLETE,
    TrialState.PRUNED: OptunaTrialState.PRUNED,
    TrialState.FAIL: OptunaTrialState.FAILED,
}
_CREATE_STUDY, _DELETE_STUDY, _CREATE_TRIAL = 0, 1, 4
_MAX_TEXT = 250
_LARGEST_WHOLE = 2**53


class _Log(BaseJournalBackend):
    """The entries to be replayed next, and which trials and studies they change.

    Optuna numbers studies and trials of a storage in the order of their creation. An entry that
    creates a study whose name is taken, or a trial of a study that does not exist, is skipped.
    """

    def __init__(self) -> None:
        self.length = 0
        self.names: dict[int, str] = {}
        self.trials: list[tuple[int, int, str | None]] = []
        self.changed_trials: set[int] = set()
        self.changed_studies: dict[int, datetime] = {}
        self._created = 0
        self._counts: dict[int, int] = {}
        self._next: Sequence[LoggedEntry] = ()
        self._saved = 0

    def supply(self, entries: Sequence[LoggedEntry], saved: int) -> None:
        """Set the entries that the next read returns."""
        self._next, self._saved = entries, saved
        self.changed_trials, self.changed_studies = set(), {}

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the next entries."""
        entries, self._next = self._next, ()
        for entry in entries:
            if entry.number != self.length:
                raise LookupError(f"entry {self.length} is missing")
            operation = json.loads(entry.text)
            self.length += 1
            self._note(operation, entry)
            yield operation

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Refuse: a replay changes nothing."""
        raise NotImplementedError

    def _note(self, operation: Mapping[str, Any], entry: LoggedEntry) -> None:
        study, trial = operation.get("study_id"), operation.get("trial_id")
        if operation["op_code"] == _CREATE_STUDY:
            if operation["study_name"] in self.names.values():
                return
            study = self._created
            self.names[study] = operation["study_name"]
            self._created += 1
        elif operation["op_code"] == _DELETE_STUDY:
            self.names.pop(operation["study_id"], None)
        elif operation["op_code"] == _CREATE_TRIAL and study in self.names:
            trial = len(self.trials)
            number = self._counts.get(study, 0)
            self._counts[study] = number + 1
            self.trials.append((study, number, entry.job))
        if entry.number < self._saved:
            return
        if trial is not None and trial < len(self.trials):
            self.changed_trials.add(trial)
            study = self.trials[trial][0]
        if study in self.names:
            self.changed_studies[study] = entry.created_at


class OptunaReplay:
    """See `portal.sweeps.ports.StudyReplay`."""

    def __init__(self) -> None:
        self._log = _Log()
        self._storage = JournalStorage(self._log)

    @property
    def length(self) -> int:
        """Number of entries that were replayed."""
        return self._log.length

    def apply(self, entries: Sequence[LoggedEntry], *, saved: int) -> Replayed:
        """See `portal.sweeps.ports.StudyReplay`."""
        log = self._log
        log.supply(entries, saved)
        self._storage.get_all_studies()
        trials = []
        parameters: dict[int, dict[str, Any]] = {}
        for trial_id in sorted(log.changed_trials):
            study, number, job = log.trials[trial_id]
            if study not in log.names:
                continue
            trial = self._storage.get_trial(trial_id)
            trials.append(_trial(trial, study, number, job))
            for name, distribution in trial.distributions.items():
                parameters.setdefault(study, {})[name] = _parameter(distribution)
        studies = [
            ReplayedStudy(
                number=study,
                name=log.names[study],
                goals=[
                    "max" if direction == StudyDirection.MAXIMIZE else "min"
                    for direction in self._storage.get_study_directions(study)
                ],
                parameters=parameters.get(study, {}),
                changed_at=changed_at,
            )
            for study, changed_at in log.changed_studies.items()
            if study in log.names
        ]
        return Replayed(studies, trials, list(log.names))


def _trial(trial: FrozenTrial, study: int, number: int, job: str | None) -> ReplayedTrial:
    return ReplayedTrial(
        study=study,
        number=number,
        state=_STATES[trial.state],
        values={name: _plain(value) for name, value in trial.params.items()},
        measured=[float(value) if math.isfinite(value) else None for value in (trial.values or ())],
        job=job,
        started_at=_utc(trial.datetime_start),
        ended_at=_utc(trial.datetime_complete),
    )


def _parameter(distribution: BaseDistribution) -> dict[str, Any]:
    if isinstance(distribution, CategoricalDistribution):
        return {"log": False, "choices": [_plain(choice) for choice in distribution.choices]}
    return {"log": bool(getattr(distribution, "log", False)), "choices": None}


def _plain(value: Any) -> float | int | str | bool | None:
    """Return a value of a parameter as both databases store it in JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, int) and abs(value) > _LARGEST_WHOLE:
        return str(value)
    if isinstance(value, str):
        text = ascii(value)[1:-1] if forbidden_character(value) is not None else value
        return shorten(text, _MAX_TEXT)
    if value is None or isinstance(value, bool | int | float):
        return value
    return shorten(ascii(value), _MAX_TEXT)


def _utc(time: datetime | None) -> datetime | None:
    """Return a time of Optuna, which is local and has no time zone."""
    return time.astimezone(UTC) if time is not None else None
