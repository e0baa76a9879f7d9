"""Registered models and their versions."""

from django.http import HttpRequest
from ninja import Path, Query, Router, Status

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.model_serializers import (
    evaluation_out,
    logged_model_out,
    model_out,
    rules_out,
    version_detail,
    versions_out,
)
from portal.api.v1.serializers import PageParameters, SearchParameters
from portal.experiments.gates import TrackedRunRole, gated_run
from portal.registry import catalog
from portal.registry.batching import state_batching
from portal.registry.catalog import find_model, find_version, list_versions
from portal.registry.lineage import lineage_of, lineage_of_version
from portal.registry.logged_models import logged_models_of
from portal.registry.model_inspection import examine
from portal.registry.records import ensure_record, records_of, rules_of
from portal.registry.services.actors import Actor
from portal.registry.services.evaluations import (
    read_golden,
    record_evaluation,
    record_golden,
    record_of,
)
from portal.registry.services.registration import change_model, register_model, register_version
from portal.registry.services.rules import change_rules
from portal.registry.tasks import hash_version
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf, RequestSchema
from slipway.schemas.batching import BatchingIn
from slipway.schemas.logged_models import LoggedModelOut
from slipway.schemas.registry import (
    EvaluationIn,
    EvaluationOut,
    GoldenIn,
    LineageOut,
    ModelChange,
    ModelIn,
    ModelName,
    ModelOut,
    ModelVersionOut,
    NodeKind,
    RulesIn,
    RulesOut,
    VersionDetail,
    VersionIn,
)

router = Router(tags=["Models"])
_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_SEE_RUN = TrackedRunRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_WRITE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_RULE = ProjectRole(Role.MAINTAINER, Scope.MODELS_PROMOTE)
_ONE = "/projects/{project}/models/{model}"
_VERSION = "/projects/{project}/models/{model}/versions/{int:version}"


class LineageQuery(RequestSchema):
    """The start node: a dataset, job, run or version, by its kind and id."""

    kind: NodeKind
    id: str


def _actor(request: HttpRequest) -> Actor:
    return Actor.of(require_principal(request))


def _detail(project: Project, model: str, version: int) -> VersionDetail:
    details = find_version(project.pk, model, version)
    record = ensure_record(project, find_model(project.pk, model), details)
    return version_detail(details, rules_of(project), examine(record, details, later=hash_version))


@router.get("/projects/{project}/models", auth=gate(_SEE), response=PageOf[ModelOut])
def list_models(request: HttpRequest, project: str, query: SearchParameters) -> PageOf[ModelOut]:
    """List the registered models of the project, by name."""
    project_row = gated_project(request)
    page = catalog.list_models(project_row.pk, text=query.q, cursor=query.cursor, limit=query.limit)
    return PageOf[ModelOut](items=list(map(model_out, page.items)), next_cursor=page.next_cursor)


@router.post("/projects/{project}/models", auth=gate(_WRITE), response={201: ModelOut})
def create_model(request: HttpRequest, project: str, payload: ModelIn) -> Status[ModelOut]:
    """Create a registered model without a version. Registering a version also creates it."""
    details = register_model(project=gated_project(request), spec=payload, by=_actor(request))
    return Status(201, model_out(details))


@router.get(_ONE, auth=gate(_SEE), response=ModelOut)
def get_model(request: HttpRequest, project: str, model: str) -> ModelOut:
    """Get a registered model."""
    return model_out(find_model(gated_project(request).pk, model))


@router.patch(_ONE, auth=gate(_WRITE), response=ModelOut)
def update_model(request: HttpRequest, project: str, model: str, payload: ModelChange) -> ModelOut:
    """Change the model card, description and tags. Omitted fields stay unchanged."""
    return model_out(change_model(project=gated_project(request), model=model, change=payload))


@router.get(f"{_ONE}/versions", auth=gate(_SEE), response=PageOf[ModelVersionOut])
def list_model_versions(
    request: HttpRequest, project: str, model: str, query: PageParameters
) -> PageOf[ModelVersionOut]:
    """List the versions of a model, newest first."""
    project_row = gated_project(request)
    details = find_model(project_row.pk, model)
    page = list_versions(project_row.pk, model, cursor=query.cursor, limit=query.limit)
    items = versions_out(page.items, rules_of(project_row), records_of(details))
    return PageOf[ModelVersionOut](items=items, next_cursor=page.next_cursor)


@router.post(f"{_ONE}/versions", auth=gate(_WRITE), response={201: VersionDetail})
def create_model_version(
    request: HttpRequest, project: str, model: Path[ModelName], payload: VersionIn
) -> Status[VersionDetail]:
    """Register the next version, and the model if it does not exist."""
    project_row = gated_project(request)
    made = register_version(project=project_row, model=model, spec=payload, by=_actor(request))
    return Status(201, _detail(project_row, model, made.number))


@router.get(_VERSION, auth=gate(_SEE), response=VersionDetail)
def get_model_version(
    request: HttpRequest, project: str, model: str, version: int
) -> VersionDetail:
    """Get a version with signature, example, metrics and digests of its files."""
    return _detail(gated_project(request), model, version)


@router.put(f"{_VERSION}/batching", auth=gate(_WRITE), response=VersionDetail)
def set_model_version_batching(
    request: HttpRequest, project: str, model: str, version: int, payload: BatchingIn
) -> VersionDetail:
    """Set the batching mode of waiting requests. Null leaves it to the golden rows.

    Endpoints apply it with the next promotion of the version.
    """
    owner = gated_project(request)
    state_batching(project=owner, model=model, number=version, mode=payload.mode)
    return _detail(owner, model, version)


@router.put(f"{_VERSION}/golden", auth=gate(_WRITE), response=VersionDetail)
def set_golden_predictions(
    request: HttpRequest, project: str, model: str, version: int, payload: GoldenIn
) -> VersionDetail:
    """Record golden predictions: input rows and their outputs."""
    project_row, by = gated_project(request), _actor(request)
    record_golden(project=project_row, model=model, number=version, golden=payload, by=by)
    return _detail(project_row, model, version)


@router.get(f"{_VERSION}/golden", auth=gate(_SEE), response=GoldenIn)
def get_golden_predictions(
    request: HttpRequest, project: str, model: str, version: int
) -> GoldenIn:
    """Get the golden predictions of a version."""
    return read_golden(record_of(gated_project(request), model, version))


@router.post(f"{_VERSION}/evaluations", auth=gate(_WRITE), response={201: EvaluationOut})
def create_evaluation(
    request: HttpRequest, project: str, model: str, version: int, payload: EvaluationIn
) -> Status[EvaluationOut]:
    """Record a metric on a dataset version. Gates count only metrics that jobs report."""
    project_row, by = gated_project(request), _actor(request)
    made = record_evaluation(project=project_row, model=model, number=version, spec=payload, by=by)
    return Status(201, evaluation_out(made))


@router.get(f"{_VERSION}/lineage", auth=gate(_SEE), response=LineageOut)
def get_model_version_lineage(
    request: HttpRequest, project: str, model: str, version: int
) -> LineageOut:
    """Get the upstream and downstream lineage of a version."""
    return lineage_of_version(gated_project(request), model, version)


@router.get("/projects/{project}/lineage", auth=gate(_SEE), response=LineageOut)
def get_lineage(request: HttpRequest, project: str, query: Query[LineageQuery]) -> LineageOut:
    """Get the lineage around a dataset, job, run or version of the project."""
    return lineage_of(gated_project(request), query.kind, query.id)


@router.get(
    "/projects/{project}/runs/{run}/models", auth=gate(_SEE_RUN), response=list[LoggedModelOut]
)
def list_run_models(request: HttpRequest, project: str, run: str) -> list[LoggedModelOut]:
    """List the models that a run logged, newest first, 50 at most."""
    models = logged_models_of(gated_project(request).pk, gated_run(request).facts.id)
    return [logged_model_out(model) for model in models]


@router.get("/projects/{project}/registry-rules", auth=gate(_SEE), response=RulesOut)
def get_registry_rules(request: HttpRequest, project: str) -> RulesOut:
    """Get the stages of the project and the gates before them."""
    return rules_out(rules_of(gated_project(request)))


@router.put("/projects/{project}/registry-rules", auth=gate(_RULE), response=RulesOut)
def set_registry_rules(request: HttpRequest, project: str, payload: RulesIn) -> RulesOut:
    """Replace the stages and gates. `revision` is that of the rules that were read."""
    project_row, by = gated_project(request), _actor(request)
    return rules_out(change_rules(project=project_row, spec=payload, by=by))
