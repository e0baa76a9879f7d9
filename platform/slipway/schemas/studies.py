"""Wire schemas of Optuna storages: the log behind `slipway.optuna_storage()`.

Under `/api/v1`:

GET    projects/{project}/optuna-storages                 PageOf[StorageOut]
DELETE projects/{project}/optuna-storages/{storage}       (204)
GET    projects/{project}/optuna-storages/{storage}/log   LogOut: entries from `from` on
POST   projects/{project}/optuna-storages/{storage}/log   LogIn → LogAppended (201)
GET    projects/{project}/optuna-studies                  PageOf[StudyOut]
GET    projects/{project}/optuna-studies/{study}          StudyOut
GET    projects/{project}/optuna-studies/{study}/trials   PageOf[StudyTrialOut]

An entry is the JSON text of one operation of Optuna's JournalStorage.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from slipway.schemas.accounts import UserOut
from slipway.schemas.base import AnswerSchema, RequestSchema
from slipway.schemas.sweeps import Goal

MAX_ENTRY_BYTES = 64 * 1024
MAX_ENTRIES_A_CALL = 500
MAX_ENTRIES = 200_000
MAX_SIZE_BYTES = 128 * 1024**2
MAX_STORAGES = 50
DEFAULT_STORAGE = "default"


class OptunaTrialState(StrEnum):
    """State of a trial of an Optuna study. `waiting` is one that was enqueued."""

    WAITING = "waiting"
    RUNNING = "running"
    COMPLETE = "complete"
    PRUNED = "pruned"
    FAILED = "failed"


class LogIn(RequestSchema):
    """Entries to append, in this order and next to each other.

    `storage_id` is the storage that the client has read, if it has. Another one is not written to.
    """

    entries: Annotated[
        list[Annotated[str, Field(min_length=2)]],
        Field(min_length=1, max_length=MAX_ENTRIES_A_CALL),
    ]
    storage_id: Annotated[str, Field(min_length=1, max_length=40)] | None = None


class LogAppended(AnswerSchema):
    """Number of the first entry that was appended, and of all entries so far.

    Send `storage_id` with later calls: another storage of this name then is an error.
    """

    first: int
    length: int
    storage_id: str


class LogOut(AnswerSchema):
    """A part of the log. Entries follow while `next` is less than `length`.

    Send `storage_id` with later calls: another storage of this name then is an error.
    """

    entries: list[str]
    next: int
    length: int
    storage_id: str


class StorageOut(AnswerSchema):
    """A storage of Optuna studies. `entries` and `size_bytes` are those of its log.

    With `is_full` or a `replay_error` studies cannot go on in it; `next_step` says what to do.
    `replay_error` names the entry that Optuna cannot apply.
    """

    id: str
    project: str
    name: str
    entries: int
    size_bytes: int
    studies: int
    is_full: bool
    replay_error: str | None
    next_step: str | None
    created_by: UserOut
    created_at: datetime


class BestStudyTrial(AnswerSchema):
    """The best complete trial of a study with one direction."""

    number: int
    value: float


class StudyOut(AnswerSchema):
    """A study that people keep with Optuna. It is seconds behind the log of its storage."""

    id: str
    project: str
    storage: str
    name: str
    goals: list[Goal]
    trials: int
    running: int
    best: BestStudyTrial | None
    created_at: datetime
    changed_at: datetime


class StudyTrialOut(AnswerSchema):
    """A trial of a study. `job` is the id of the job that created it, if one did.

    `values` are what the study optimizes. One that is not finite is null.
    """

    number: int
    state: OptunaTrialState
    parameters: dict[str, float | int | str | bool | None]
    values: list[float | None]
    job: str | None
    started_at: datetime | None
    ended_at: datetime | None
