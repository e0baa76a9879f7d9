"""Presenters of Optuna studies: activity, curve, slices, front, rows of trials."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import QuerySet

from portal.accounts.models import Project
from portal.core import clock
from portal.core.text import size_text
from portal.sweeps.fronts import MOST_COMPARED, front
from portal.sweeps.models import OptunaStorage, OptunaStudy, OptunaTrial
from portal.web.sweeps.presenters import (
    MOST_IN_SLICES,
    MOST_POINTS,
    Slices,
    curve_json,
    shown_parameters,
)
from slipway.schemas.studies import MAX_ENTRIES, MAX_SIZE_BYTES, OptunaTrialState
from slipway.schemas.sweeps import MAX_ON_FRONT, Metric

# A process that died leaves running trials behind, so a study counts as active only so long.
_ACTIVE_FOR = timedelta(hours=1)
_MOST_LISTED = 50
_MOST_OTHERS = 10
_TONES = {
    OptunaTrialState.RUNNING: "strong",
    OptunaTrialState.COMPLETE: "ok",
    OptunaTrialState.FAILED: "bad",
}


@dataclass(frozen=True)
class StudyStatus:
    """Status of a study or a trial of one, as the part that shows states reads it."""

    label: str
    tone: str
    is_active: bool

    @classmethod
    def of_study(cls, study: OptunaStudy) -> "StudyStatus":
        """Return `active` for a study with running trials that has changed lately."""
        is_active = study.running > 0 and study.changed_at > clock.now() - _ACTIVE_FOR
        return cls("active", "strong", True) if is_active else cls("idle", "", False)

    @classmethod
    def of_trial(cls, trial: OptunaTrial) -> "StudyStatus":
        """Return the status of a trial."""
        is_active = trial.status == OptunaTrialState.RUNNING
        return cls(trial.state, _TONES.get(trial.status, ""), is_active)


@dataclass(frozen=True)
class StudyRow:
    """A study in a list."""

    study: OptunaStudy
    status: StudyStatus

    @classmethod
    def newest_of(cls, project: Project, text: str = "") -> "list[StudyRow]":
        """Return the studies of a project whose name contains `text`, the last changed first."""
        studies = OptunaStudy.objects.of_project(project).filter(name__icontains=text)
        newest = studies.order_by("-changed_at")[:_MOST_LISTED]
        return [cls(study, StudyStatus.of_study(study)) for study in newest]


@dataclass(frozen=True)
class StorageSummary:
    """A storage with how full it is. `others` are its other studies, the last changed first."""

    storage: OptunaStorage
    studies: int
    size: str
    others: Sequence[OptunaStudy] = ()

    @classmethod
    def of(cls, storage: OptunaStorage) -> "StorageSummary":
        """Return the summary of a storage from a query `with_studies`."""
        count = storage.study_count  # type: ignore[attr-defined]  # with_studies adds it
        return cls(storage, count, _fill(storage))

    @classmethod
    def around(cls, study: OptunaStudy) -> "StorageSummary":
        """Return the summary of the storage of a study."""
        studies = OptunaStudy.objects.filter(storage=study.storage)
        others = studies.exclude(pk=study.pk).order_by("-changed_at", "-number")[:_MOST_OTHERS]
        return cls(study.storage, studies.count(), _fill(study.storage), list(others))

    @property
    def unlisted(self) -> int:
        """Number of other studies that `others` leaves out."""
        return max(0, self.studies - 1 - len(self.others))


@dataclass(frozen=True)
class StudyTrialRow:
    """A trial in the table. `values` are names, values with six digits, and exact values."""

    trial: OptunaTrial
    status: StudyStatus
    values: Sequence[tuple[str, str, str]]
    measured: Sequence[float | None]

    @classmethod
    def of(cls, trial: OptunaTrial, values: int) -> "StudyTrialRow":
        """Return the row of a trial of a study with so many values."""
        measured = [*trial.measured, *[None] * (values - len(trial.measured))][:values]
        return cls(trial, StudyStatus.of_trial(trial), shown_parameters(trial.values), measured)


def value_names(study: OptunaStudy) -> list[str]:
    """Return names for the values of a study: Optuna has none."""
    if len(study.goals) == 1:
        return [f"value ({study.goals[0]})"]
    return [f"value {at} ({goal})" for at, goal in enumerate(study.goals)]


def study_curve(study: OptunaStudy) -> str:
    """Return the data of the chart of a study with one goal, as JSON."""
    rows = _complete(study).order_by("number").values_list("number", "value")
    return curve_json("value", study.goals[0], [(number, value, True) for number, value in rows])


def study_slices(study: OptunaStudy) -> Slices | None:
    """Return the slices of a study, None while fewer than two trials are complete."""
    rows = _complete(study).order_by("-number").values_list("number", "measured", "values")
    spaces = {
        name: (bool(space["log"]), space["choices"]) for name, space in study.parameters.items()
    }
    return Slices.from_rows(value_names(study), spaces, list(rows[:MOST_IN_SLICES]))


@dataclass(frozen=True)
class StudyFront:
    """The Pareto front of a study with several goals. `data` is that of the chart, as JSON."""

    metrics: Sequence[Metric]
    rows: Sequence[StudyTrialRow]
    count: int
    data: str

    @classmethod
    def of(cls, study: OptunaStudy) -> "StudyFront":
        """Return the front of the newest complete trials."""
        newest = _complete(study).order_by("-number")[:MOST_COMPARED]
        # A trial without a value, or with an infinite one, is on no front.
        trials = [
            trial
            for trial in newest
            if len(trial.measured) == len(study.goals) and None not in trial.measured
        ]
        best = [trials[place] for place in front([each.measured for each in trials], study.goals)]
        shown = best[:MAX_ON_FRONT]
        numbers = {trial.number for trial in shown}
        data = {
            "metrics": value_names(study),
            "front": [[trial.number, *trial.measured] for trial in shown],
            "others": [
                [trial.number, *trial.measured]
                for trial in trials[:MOST_POINTS]
                if trial.number not in numbers
            ],
        }
        rows = [StudyTrialRow.of(trial, len(study.goals)) for trial in shown]
        metrics = [Metric(name=f"value {at}", goal=goal) for at, goal in enumerate(study.goals)]
        return cls(metrics, rows, len(best), json.dumps(data))


def _fill(storage: OptunaStorage) -> str:
    return (
        f"{storage.length:,} of {MAX_ENTRIES:,} entries, {size_text(storage.size_bytes)} of "
        f"{size_text(MAX_SIZE_BYTES)}"
    )


def _complete(study: OptunaStudy) -> QuerySet[OptunaTrial]:
    return OptunaTrial.objects.filter(
        study=study, state=OptunaTrialState.COMPLETE, value__isnull=False
    )
