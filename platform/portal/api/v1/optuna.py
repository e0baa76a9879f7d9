"""Operations on Optuna storages and their studies."""

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, SearchParameters, page_of
from portal.core.pagination import paginate
from portal.sweeps.gates import (
    OptunaStorageRole,
    OptunaStudyRole,
    gated_storage,
    gated_study,
)
from portal.sweeps.models import OptunaStudy, OptunaTrial
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
    StudyOut,
    StudyTrialOut,
)

router = Router(tags=["Optuna"])
# The scopes of runs: the token of a job has them, and a study is what a script logs.
_READ = OptunaStorageRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_SEE_ALL = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_SEE = OptunaStudyRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_WRITE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_LOG = "/projects/{project}/optuna-storages/{storage}/log"


class LogEntryQuery(BaseModel):
    """A part of a log, from an entry on."""

    first: int = Field(default=0, ge=0, le=MAX_ENTRIES, alias="from")
    limit: int = Field(default=MAX_ENTRIES_A_CALL, ge=1, le=MAX_ENTRIES_A_CALL)


@router.get(_LOG, auth=gate(_READ), response=LogOut)
def get_optuna_log(
    request: HttpRequest, project: str, storage: str, query: Query[LogEntryQuery]
) -> LogOut:
    """Read entries of an Optuna storage in their order. They are numbered from 0, without gaps.

    Long entries come in parts: go on with `next` until it is `length`.
    """
    return read_entries(gated_storage(request), first=query.first, limit=query.limit)


@router.post(_LOG, auth=gate(_WRITE), response={201: LogAppended})
def append_optuna_log(
    request: HttpRequest, project: str, storage: str, payload: LogIn
) -> Status[LogAppended]:
    """Append entries to an Optuna storage. The first call creates the storage.

    An entry that Optuna could not replay is refused, and with it the whole call.
    """
    appended = append_entries(
        project=gated_project(request),
        principal=require_principal(request),
        name=storage,
        entries=payload.entries,
    )
    return Status(201, appended)


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
