"""Pools, visible to those who may use them and managed by administrators."""

from typing import Annotated

from django.db.models import Count
from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import Administrator, SignedIn
from portal.accounts.models import User
from portal.accounts.principal import Principal, require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, page_of
from portal.compute.engines import engine_label
from portal.compute.models import Pool, PoolAccount
from portal.compute.services import pool_accounts, pool_helpers, pools
from portal.core.errors import NotFound
from portal.core.pagination import paginate
from portal.spend.pool_usage import present_pool_usage
from portal.workloads.models import Allocation, Workload
from slipway.schemas.accounts import Scope
from slipway.schemas.base import Line, PageOf, Slug
from slipway.schemas.pools import PoolAccountOut, PoolChange, PoolIn, PoolOut, PoolUsageOut

router = Router(tags=["Pools"])
_SEE = SignedIn(Scope.WORKLOADS_READ, confined=True)
_LINK = SignedIn(Scope.WORKLOADS_WRITE, confined=True)


class PoolFilter(BaseModel):
    """`project` keeps the pools that the project may use."""

    project: Slug | None = None


class UsageQuery(BaseModel):
    """`today`, `7d`, `month` (the current one) or a month such as `2026-11`, all in UTC."""

    window: Annotated[Line, Field(max_length=10)] = "month"


@router.get("/pools", auth=gate(_SEE), response=PageOf[PoolOut])
def list_pools(
    request: HttpRequest, page: PageParameters, query: Query[PoolFilter]
) -> PageOf[PoolOut]:
    """List the pools that one's projects may use; administrators see all."""
    principal = require_principal(request)
    visible = Pool.objects.visible_to(principal)
    if query.project is not None:
        project = principal.projects().live().filter(slug=query.project).first()
        visible = visible.none() if project is None else Pool.objects.usable_by(project)
    shown = paginate(visible, cursor=page.cursor, limit=page.limit)
    return page_of(shown, lambda pool: _pool_out(pool, principal))


@router.post("/pools", auth=gate(Administrator()), response={201: PoolOut})
def create_pool(request: HttpRequest, payload: PoolIn) -> Status[PoolOut]:
    """Create a pool."""
    made = pools.create_pool(
        name=payload.name,
        engine=payload.engine,
        settings=payload.settings,
        most_requests=payload.most_requests,
        price_percent=payload.price_percent,
        projects=None if payload.projects is None else pools.named_projects(payload.projects),
    )
    return Status(201, _pool_out(made, require_principal(request)))


@router.get("/pools/{pool}", auth=gate(_SEE), response=PoolOut)
def get_pool(request: HttpRequest, pool: str) -> PoolOut:
    """Get a pool."""
    principal = require_principal(request)
    return _pool_out(_pool(principal, pool), principal)


@router.patch("/pools/{pool}", auth=gate(Administrator()), response=PoolOut)
def update_pool(request: HttpRequest, pool: str, payload: PoolChange) -> PoolOut:
    """Change, close or open a pool. What waits or runs there goes on."""
    principal = require_principal(request)
    is_for_all = "projects" in payload.model_fields_set and payload.projects is None
    changed = pools.change_pool(
        pool=_pool(principal, pool),
        settings=payload.settings,
        most_requests=payload.most_requests,
        price_percent=payload.price_percent,
        is_open=payload.is_open,
        projects=None if payload.projects is None else pools.named_projects(payload.projects),
        is_for_all=True if is_for_all else None,
    )
    return _pool_out(changed, principal)


@router.delete("/pools/{pool}", auth=gate(Administrator()), response={204: None})
def delete_pool(request: HttpRequest, pool: str) -> Status[None]:
    """Remove a pool in which nothing waits or runs."""
    pools.remove_pool(pool=_pool(require_principal(request), pool))
    return Status(204, None)


@router.get("/pools/{pool}/usage", auth=gate(Administrator()), response=PoolUsageOut)
def get_pool_usage(request: HttpRequest, pool: str, query: Query[UsageQuery]) -> PoolUsageOut:
    """Get the bill of a pool's ended allocations beside the accounting of its engine."""
    return present_pool_usage(_pool(require_principal(request), pool), query.window)


@router.get("/pools/{pool}/account", auth=gate(_SEE), response=PoolAccountOut)
def get_pool_account(request: HttpRequest, pool: str) -> PoolAccountOut:
    """Get one's own account in the system of a pool."""
    principal = require_principal(request)
    row = _pool(principal, pool)
    if given := pool_accounts.given_account(row, principal.user):
        return PoolAccountOut(pool=row.name, name=given)
    account = PoolAccount.objects.filter(pool=row, user=principal.user).first()
    return _account_out(row, principal.user, account)


@router.post("/pools/{pool}/account", auth=gate(_LINK), response={201: PoolAccountOut})
def link_pool_account(request: HttpRequest, pool: str) -> Status[PoolAccountOut]:
    """Get the command that proves one's account in the system of a pool."""
    principal = require_principal(request)
    row = _pool(principal, pool)
    account = pool_accounts.request_link(pool=row, user=principal.user)
    return Status(201, _account_out(row, principal.user, account))


def _account_out(pool: Pool, user: User, account: PoolAccount | None) -> PoolAccountOut:
    command = pool_accounts.proof_command(pool, account)
    is_running = None
    if pool_helpers.uses_helpers(pool):
        command = pool_helpers.helper_command(pool)
        is_running = pool_helpers.is_helper_running(pool, user.pk)
    return PoolAccountOut(
        pool=pool.name,
        name=(account.unix_name if account else "") or None,
        command=command,
        linked_at=account.linked_at if account else None,
        problem=account.problem if account else "",
        is_helper_running=is_running,
    )


def _pool(principal: Principal, name: str) -> Pool:
    pool = Pool.objects.visible_to(principal).filter(name=name).first()
    if pool is None:
        raise NotFound
    return pool


def _pool_out(pool: Pool, principal: Principal) -> PoolOut:
    is_administrator = principal.user.is_administrator
    waiting = Workload.objects.queued().filter(pool=pool).aggregate(count=Count("pk"))["count"]
    projects = None
    if is_administrator and not pool.is_for_all:
        projects = sorted(pool.projects.values_list("slug", flat=True))
    return PoolOut(
        id=pool.pk,
        name=pool.name,
        engine=pool.engine,
        engine_label=engine_label(pool.engine),
        is_open=pool.is_open,
        most_requests=pool.most_requests,
        price_percent=pool.price_percent,
        waiting=waiting,
        requests=Allocation.objects.open().filter(pool=pool).count(),
        problem=pool.problem,
        settings=pool.settings if is_administrator else {},
        projects=projects,
    )
