"""Service accounts of projects and their tokens."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import ApiToken, ServiceAccount
from portal.accounts.principal import require_principal
from portal.accounts.service_account_gates import ServiceAccountRole, gated_account
from portal.accounts.services import service_accounts as services
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, SearchParameters, page_of, token_out
from portal.core.pagination import Page, paginate
from slipway.schemas.accounts import (
    Role,
    Scope,
    ServiceAccountChange,
    ServiceAccountIn,
    ServiceAccountOut,
    ServiceTokenCreated,
    ServiceTokenIn,
    ServiceTokenOut,
)
from slipway.schemas.base import PageOf

router = Router(tags=["Service accounts"])
_ACCOUNTS = "/projects/{project}/service-accounts"
_ACCOUNT = "/projects/{project}/service-accounts/{account}"
_SEE = ServiceAccountRole(Role.VIEWER, Scope.PROJECTS_READ)
_CHANGE = ServiceAccountRole(Role.OWNER, Scope.MEMBERS_WRITE)
_STOP = ServiceAccountRole(Role.MAINTAINER, Scope.MEMBERS_WRITE)
_SEE_TOKENS = ServiceAccountRole(Role.MAINTAINER, Scope.TOKENS_READ)
_CHANGE_TOKENS = ServiceAccountRole(Role.MAINTAINER, Scope.TOKENS_WRITE)


def _out(account: ServiceAccount) -> ServiceAccountOut:
    return ServiceAccountOut(
        id=account.pk,
        project=account.project.slug,
        name=account.name,
        address=account.user.email,
        role=account.role,
        state=account.state,
        description=account.description,
        created_by=account.created_by.email,
        created_at=account.created_at,
        tokens=account.token_count,  # type: ignore[attr-defined]  # with_use adds both
        last_used_at=account.last_used_at,  # type: ignore[attr-defined]
    )


def _shown(account: ServiceAccount) -> ServiceAccountOut:
    """Serialize an account, after a change as it is by now."""
    accounts = ServiceAccount.objects.of_project(account.project).with_use()
    return _out(accounts.get(pk=account.pk))


def _token_out(token: ApiToken) -> ServiceTokenOut:
    maker = token.created_by.email if token.created_by is not None else None
    return ServiceTokenOut(**token_out(token).model_dump(), created_by=maker)


@router.get(
    _ACCOUNTS,
    auth=gate(ProjectRole(Role.VIEWER, Scope.PROJECTS_READ)),
    response=PageOf[ServiceAccountOut],
)
def list_service_accounts(
    request: HttpRequest, project: str, query: SearchParameters
) -> PageOf[ServiceAccountOut]:
    """List the service accounts of a project, newest first."""
    accounts = ServiceAccount.objects.of_project(gated_project(request)).matching(query.q)
    page: Page[ServiceAccount] = paginate(
        accounts.with_use(), cursor=query.cursor, limit=query.limit
    )
    return page_of(page, _out)


@router.post(
    _ACCOUNTS,
    auth=gate(ProjectRole(Role.OWNER, Scope.MEMBERS_WRITE)),
    response={201: ServiceAccountOut},
)
def create_service_account(
    request: HttpRequest, project: str, payload: ServiceAccountIn
) -> Status[ServiceAccountOut]:
    """Create a service account. It can do nothing until it has a token or a schedule."""
    account = services.create_service_account(
        project=gated_project(request),
        by=require_principal(request).user,
        name=payload.name,
        role=Role(payload.role),
        description=payload.description,
    )
    return Status(201, _shown(account))


@router.get(_ACCOUNT, auth=gate(_SEE), response=ServiceAccountOut)
def get_service_account(request: HttpRequest, project: str, account: str) -> ServiceAccountOut:
    """Get a service account."""
    return _shown(gated_account(request))


@router.patch(_ACCOUNT, auth=gate(_CHANGE), response=ServiceAccountOut)
def update_service_account(
    request: HttpRequest, project: str, account: str, payload: ServiceAccountChange
) -> ServiceAccountOut:
    """Change the role or the description of a service account."""
    changed = services.change_service_account(
        account=gated_account(request),
        by=require_principal(request).user,
        role=Role(payload.role) if payload.role is not None else None,
        description=payload.description,
    )
    return _shown(changed)


@router.delete(_ACCOUNT, auth=gate(_CHANGE), response={204: None})
def delete_service_account(request: HttpRequest, project: str, account: str) -> Status[None]:
    """Delete a service account. Its tokens end, its schedules pause, and history keeps its name."""
    by = require_principal(request).user
    services.delete_service_account(account=gated_account(request), by=by)
    return Status(204, None)


@router.post(f"{_ACCOUNT}/disable", auth=gate(_STOP), response=ServiceAccountOut)
def disable_service_account(request: HttpRequest, project: str, account: str) -> ServiceAccountOut:
    """Disable a service account: its tokens stop at once, and its schedules pause."""
    by = require_principal(request).user
    return _shown(services.disable_service_account(account=gated_account(request), by=by))


@router.post(f"{_ACCOUNT}/enable", auth=gate(_CHANGE), response=ServiceAccountOut)
def enable_service_account(request: HttpRequest, project: str, account: str) -> ServiceAccountOut:
    """Enable a service account. Its schedules stay paused until they are resumed."""
    return _shown(services.enable_service_account(account=gated_account(request)))


@router.get(f"{_ACCOUNT}/tokens", auth=gate(_SEE_TOKENS), response=PageOf[ServiceTokenOut])
def list_service_tokens(
    request: HttpRequest, project: str, account: str, page: PageParameters
) -> PageOf[ServiceTokenOut]:
    """List the tokens of a service account, including revoked and expired ones."""
    tokens = ApiToken.objects.filter(user=gated_account(request).user)
    tokens = tokens.select_related("project", "created_by")
    return page_of(paginate(tokens, cursor=page.cursor, limit=page.limit), _token_out)


@router.post(f"{_ACCOUNT}/tokens", auth=gate(_CHANGE_TOKENS), response={201: ServiceTokenCreated})
def create_service_token(
    request: HttpRequest, project: str, account: str, payload: ServiceTokenIn
) -> Status[ServiceTokenCreated]:
    """Create a token of a service account. Only this response contains its secret."""
    made = services.create_service_token(
        account=gated_account(request),
        by=require_principal(request),
        name=payload.name,
        preset=payload.preset,
        scopes=payload.scopes,
        expires_in_days=payload.expires_in_days,
    )
    shown = _token_out(made.token).model_dump()
    return Status(201, ServiceTokenCreated(**shown, token=made.secret))


@router.delete(f"{_ACCOUNT}/tokens/{{token_id}}", auth=gate(_CHANGE_TOKENS), response={204: None})
def revoke_service_token(
    request: HttpRequest, project: str, account: str, token_id: str
) -> Status[None]:
    """Revoke a token of a service account immediately."""
    services.revoke_service_token(account=gated_account(request), token_id=token_id)
    return Status(204, None)
