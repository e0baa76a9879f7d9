"""Operations on Optuna storages and their studies."""

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, SearchParameters, page_of, user_out
from portal.core.pagination import paginate
from portal.sweeps.gates import (
    OptunaStorageRole,
    OptunaStudyRole,
    gated_storage,
    gated_study,
)
from portal.sweeps.models import OptunaStorage, OptunaStudy, OptunaTrial
from portal.sweeps.services.storage_deletion import delete_storage
from portal.sweeps.services.storages import append_entries, read_entries
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.studies import (
    MAX_ENTRIES,
    MAX_ENTRIES_A_CALL,
    BestStudyTrial,
    LogAppended,
    LogIn,
    LogOut,
    StorageOut,
    StudyOut,
    StudyTrialOut,
)

router = Router(tags=["Optuna"])
# The scopes of runs: the token of a job has them, and a study is what a script logs.
_READ = OptunaStorageRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_SEE_ALL = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_SEE = OptunaStudyRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_WRITE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_DELETE = OptunaStorageRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_STORAGES = "/projects/{project}/optuna-storages"
_LOG = f"{_STORAGES}/{{storage}}/log"


class LogEntryQuery(BaseModel):
    """A part of a log, from an entry on."""

    first: int = Field(default=0, ge=0, le=MAX_ENTRIES, alias="from")
    limit: int = Field(default=MAX_ENTRIES_A_CALL, ge=1, le=MAX_ENTRIES_A_CALL)
    storage_id: str | None = Field(default=None, min_length=1, max_length=40)


@router.get(_STORAGES, auth=gate(_SEE_ALL), response=PageOf[StorageOut])
def list_optuna_storages(
    request: HttpRequest, project: str, query: PageParameters
) -> PageOf[StorageOut]:
    """List the storages of Optuna studies with their sizes, newest first."""
    storages = OptunaStorage.objects.of_project(gated_project(request)).with_studies()
    storages = storages.select_related("project", "created_by")
    return page_of(paginate(storages, cursor=query.cursor, limit=query.limit), _storage_out)


@router.delete(f"{_STORAGES}/{{storage}}", auth=gate(_DELETE), response={204: None})
def delete_optuna_storage(request: HttpRequest, project: str, storage: str) -> Status[None]:
    """Delete an Optuna storage with its studies and trials. Jobs stay.

    It is refused while a job that has written to the storage has not ended.
    """
    delete_storage(storage=gated_storage(request))
    return Status(204, None)


@router.get(_LOG, auth=gate(_READ), response=LogOut)
def get_optuna_log(
    request: HttpRequest, project: str, storage: str, query: Query[LogEntryQuery]
) -> LogOut:
    """Read entries of an Optuna storage in their order. They are numbered from 0, without gaps.

    Long entries come in parts: go on with `next` until it is `length`. With `storage_id` a storage
    that was deleted, and created again by its name, is a conflict.
    """
    return read_entries(
        gated_storage(request),
        first=query.first,
        limit=query.limit,
        storage_id=query.storage_id,
    )


@router.post(_LOG, auth=gate(_WRITE), response={201: LogAppended})
def append_optuna_log(
    request: HttpRequest, project: str, storage: str, payload: LogIn
) -> Status[LogAppended]:
    """Append entries to an Optuna storage. The first call creates the storage.

    An entry that Optuna could not replay is refused, and with it the whole call. With `storage_id`
    only that storage is written to: if it was deleted, this is a conflict.
    """
    appended = append_entries(
        project=gated_project(request),
        principal=require_principal(request),
        name=storage,
        entries=payload.entries,
        storage_id=payload.storage_id,
    )
    return Status(201, appended)


def _storage_out(storage: OptunaStorage) -> StorageOut:
    return StorageOut(
        id=storage.pk,
        project=storage.project.slug,
        name=storage.name,
        entries=storage.length,
        size_bytes=storage.size_bytes,
        studies=storage.study_count,  # type: ignore[attr-defined]  # with_studies adds it
        is_full=storage.is_full,
        replay_error=storage.replay_error or None,
        next_step=storage.next_step or None,
        created_by=user_out(storage.created_by),
        created_at=storage.created_at,
    )


def _study_out(study: OptunaStudy) -> StudyOut:
    best = None
    if study.best is not None and study.best_value is not None:
        best = BestStudyTrial(number=study.best, value=study.best_value)
    return StudyOut(
        id=study.pk,
        project=study.storage.project.slug,
        storage=study.storage.name,
        name=study.name,
        goals=study.goals,
        trials=study.trials,
        running=study.running,
        best=best,
        created_at=study.created_at,
        changed_at=study.changed_at,
    )


def _trial_out(trial: OptunaTrial) -> StudyTrialOut:
    return StudyTrialOut(
        number=trial.number,
        state=trial.status,
        parameters=trial.values,
        values=trial.measured,
        job=trial.job_id,
        started_at=trial.started_at,
        ended_at=trial.ended_at,
    )


@router.get("/projects/{project}/optuna-studies", auth=gate(_SEE_ALL), response=PageOf[StudyOut])
def list_optuna_studies(
    request: HttpRequest, project: str, query: SearchParameters
) -> PageOf[StudyOut]:
    """List the studies that people keep with Optuna, newest first."""
    studies = OptunaStudy.objects.of_project(gated_project(request))
    if query.q:
        studies = studies.filter(name__icontains=query.q)
    return page_of(paginate(studies, cursor=query.cursor, limit=query.limit), _study_out)


@router.get("/projects/{project}/optuna-studies/{study}", auth=gate(_SEE), response=StudyOut)
def get_optuna_study(request: HttpRequest, project: str, study: str) -> StudyOut:
    """Get an Optuna study, with its best trial."""
    return _study_out(gated_study(request))


@router.get(
    "/projects/{project}/optuna-studies/{study}/trials",
    auth=gate(_SEE),
    response=PageOf[StudyTrialOut],
)
def list_optuna_trials(
    request: HttpRequest, project: str, study: str, query: PageParameters
) -> PageOf[StudyTrialOut]:
    """List the trials of an Optuna study, newest first."""
    trials = OptunaTrial.objects.filter(study=gated_study(request))
    return page_of(paginate(trials, cursor=query.cursor, limit=query.limit), _trial_out)
