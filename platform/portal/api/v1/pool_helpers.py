"""The helper of a person in a pool: it waits for requests, takes them and answers them."""

from django.http import HttpRequest
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import SignedIn
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.compute.models import HelperRequest, PoolHelper
from portal.compute.services import pool_helpers
from slipway.schemas.accounts import Scope
from slipway.schemas.pool_helpers import (
    HelperAnswerIn,
    HelperRequestOut,
    HelperTakeIn,
    HelperTakeOut,
    PoolHelperOut,
)

router = Router(tags=["Pools"])
# A token that is limited to a project would get the work of the person's other projects as well.
_SEE = SignedIn(Scope.WORKLOADS_READ)
_HELP = SignedIn(Scope.WORKLOADS_WRITE)


class HelperQuery(BaseModel):
    """`seen` is the version the helper knows. The response waits up to `wait_s` for a newer one."""

    seen: int = Field(default=0, ge=0, le=2**62)
    wait_s: float = Field(default=0, ge=0, le=60)


@router.get("/pools/{pool}/helper", auth=gate(_SEE), response=PoolHelperOut)
def get_pool_helper(request: HttpRequest, pool: str, query: Query[HelperQuery]) -> PoolHelperOut:
    """Get one's own helper in a pool, after the long poll."""
    principal = require_principal(request)
    row = pool_helpers.helper_pool(principal, pool)
    helper = PoolHelper.objects.filter(pool=row, user=principal.user).first()
    return PoolHelperOut(
        pool=row.name,
        command=pool_helpers.helper_command(row),
        is_running=pool_helpers.is_helper_running(row, principal.user_id),
        seen_at=helper.seen_at if helper else None,
        version=pool_helpers.helper_version(principal.user),
        waiting=pool_helpers.waiting_requests(row, principal.user),
    )


@router.post("/pools/{pool}/helper/take", auth=gate(_HELP), response=HelperTakeOut)
def take_helper_request(request: HttpRequest, pool: str, payload: HelperTakeIn) -> HelperTakeOut:
    """Take the oldest request that waits for one's own helper in a pool."""
    principal = require_principal(request)
    row = pool_helpers.helper_pool(principal, pool)
    taken = pool_helpers.take_request(pool=row, user=principal.user, helper=payload.helper)
    return HelperTakeOut(request=_request_out(taken) if taken else None)


@router.post(
    "/pools/{pool}/helper/requests/{helper_request}", auth=gate(_HELP), response={204: None}
)
def answer_helper_request(
    request: HttpRequest, pool: str, helper_request: str, payload: HelperAnswerIn
) -> Status[None]:
    """Answer a request that one's own helper took."""
    principal = require_principal(request)
    row = pool_helpers.helper_pool(principal, pool)
    pool_helpers.answer_request(
        pool=row, user=principal.user, request=helper_request, answer=payload
    )
    return Status(204, None)


def _request_out(row: HelperRequest) -> HelperRequestOut:
    return HelperRequestOut(
        id=row.pk,
        operation=row.operation,
        name=row.arguments.get("options", {}).get("job-name", ""),
        options=row.arguments.get("options", {}),
        script=pool_helpers.script_of(row),
        handles=row.arguments.get("handles", []),
    )
