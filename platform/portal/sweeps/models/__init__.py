"""Tables of sweeps, and of studies that people keep with Optuna themselves."""

from portal.sweeps.models.storages import OptunaLogEntry, OptunaStorage
from portal.sweeps.models.studies import OptunaStudy, OptunaTrial
from portal.sweeps.models.sweeps import (
    KeptTrial,
    PriorTrial,
    Sweep,
    SweepQuerySet,
    Trial,
    TrialJob,
    TrialQuerySet,
    TrialRepeat,
    TrialRung,
)

__all__ = [
    "KeptTrial",
    "OptunaLogEntry",
    "OptunaStorage",
    "OptunaStudy",
    "OptunaTrial",
    "PriorTrial",
    "Sweep",
    "SweepQuerySet",
    "Trial",
    "TrialJob",
    "TrialQuerySet",
    "TrialRepeat",
    "TrialRung",
]
