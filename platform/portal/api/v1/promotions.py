"""Promotions: plans, requests, approvals, history."""

from django.http import HttpRequest, HttpResponse
from ninja import Path, Query, Router, Status

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.model_serializers import move_out, plan_out, request_out
from portal.api.v1.serializers import ListParameters, PageParameters, announce_rest, page_of
from portal.core.pagination import Page, paginate
from portal.registry.catalog import find_model, find_version
from portal.registry.models import Move
from portal.registry.promotion_gates import Target
from portal.registry.records import line_of
from portal.registry.services.actors import Actor
from portal.registry.services.promotions import plan_promotion, promote, remove_alias
from portal.registry.services.requests import decide, request_approval, requests_of
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.registry import (
    AliasName,
    DecisionIn,
    MoveOut,
    PlanOut,
    PromoteIn,
    RequestIn,
    RequestOut,
    TargetIn,
)

router = Router(tags=["Models"])
_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_MOVE = ProjectRole(Role.CONTRIBUTOR, Scope.MODELS_PROMOTE)
_ONE = "/projects/{project}/models/{model}"
_VERSION = "/projects/{project}/models/{model}/versions/{int:version}"


def _actor(request: HttpRequest) -> Actor:
    return Actor.of(require_principal(request))


def _target(named: TargetIn) -> Target:
    return Target(named.kind, named.name)


@router.get(f"{_VERSION}/plan", auth=gate(_SEE), response=PlanOut)
def get_promotion_plan(
    request: HttpRequest, project: str, model: str, version: int, query: Query[TargetIn]
) -> PlanOut:
    """Get what a promotion would change, and the result of each gate. Nothing is changed."""
    project_row, target = gated_project(request), _target(query)
    return plan_out(plan_promotion(project=project_row, model=model, number=version, target=target))


@router.post(f"{_VERSION}/promote", auth=gate(_MOVE), response={201: MoveOut})
def promote_model_version(
    request: HttpRequest, project: str, model: str, version: int, payload: PromoteIn
) -> Status[MoveOut]:
    """Move a version to a stage, or an alias to it. Of two concurrent moves one gets 409."""
    move = promote(
        project=gated_project(request),
        model=model,
        number=version,
        target=_target(payload),
        by=_actor(request),
        sequence=payload.sequence,
        override_reason=payload.override_reason,
        archive_replaced=payload.archive_replaced,
    )
    return Status(201, move_out(move))


@router.get(f"{_ONE}/history", auth=gate(_SEE), response=PageOf[MoveOut])
def list_model_history(
    request: HttpRequest, project: str, model: str, query: PageParameters
) -> PageOf[MoveOut]:
    """List the promotions of a model in order, newest first."""
    line = line_of(find_model(gated_project(request).pk, model))
    moves = Move.objects.filter(line=line).select_related("by")
    page: Page[Move] = paginate(moves, cursor=query.cursor, limit=query.limit)
    return page_of(page, move_out)


@router.delete(f"{_ONE}/aliases/{{alias}}", auth=gate(_MOVE), response=MoveOut)
def delete_model_alias(
    request: HttpRequest, project: str, model: str, alias: Path[AliasName]
) -> MoveOut:
    """Delete an alias. A protected one requires a maintainer."""
    project_row, by = gated_project(request), _actor(request)
    return move_out(remove_alias(project=project_row, model=model, alias=alias, by=by))


@router.post(f"{_VERSION}/requests", auth=gate(_MOVE), response={201: RequestOut})
def create_promotion_request(
    request: HttpRequest, project: str, model: str, version: int, payload: RequestIn
) -> Status[RequestOut]:
    """Request the approval of a promotion."""
    made = request_approval(
        project=gated_project(request),
        model=model,
        number=version,
        target=_target(payload),
        by=_actor(request),
        note=payload.note,
    )
    return Status(201, request_out(made))


@router.get(f"{_VERSION}/requests", auth=gate(_SEE), response=list[RequestOut])
def list_promotion_requests(
    request: HttpRequest,
    response: HttpResponse,
    project: str,
    model: str,
    version: int,
    query: ListParameters,
) -> list[RequestOut]:
    """List the promotion requests of a version, newest first.

    The header `X-Slipway-Next-Cursor` is present if there are more. Pass it as `cursor`.
    """
    project_row = gated_project(request)
    find_version(project_row.pk, model, version)
    rows = requests_of(project_row, model, version)
    page = announce_rest(response, paginate(rows, cursor=query.cursor, limit=query.limit))
    return [request_out(row) for row in page.items]


@router.post(f"{_ONE}/requests/{{request_id}}/decision", auth=gate(_MOVE), response=RequestOut)
def decide_promotion_request(
    request: HttpRequest, project: str, model: str, request_id: str, payload: DecisionIn
) -> RequestOut:
    """Approve or reject as an independent maintainer, or withdraw your own request."""
    decided = decide(
        project=gated_project(request),
        model=model,
        request_id=request_id,
        verdict=payload.verdict,
        by=_actor(request),
        note=payload.note,
    )
    return request_out(decided)
