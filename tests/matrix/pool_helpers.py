"""A request to the helper of a person in a pool, and bodies about it."""

from typing import Any

from portal.accounts.models import User
from portal.compute.models import Pool
from portal.compute.services.pool_helpers import put_request, take_request
from slipway.schemas.pool_helpers import HelperOperation

_HELPER = "a" * 24
HELPERS: dict[tuple[str, str], Any] = {
    ("POST", "/api/v1/pools/{pool}/helper/take"): {"helper": _HELPER},
    ("POST", "/api/v1/pools/{pool}/helper/requests/{helper_request}"): {
        "helper": _HELPER,
        "status": "done",
    },
}


def make_helper_request(pool: Pool, person: User) -> str:
    """Create a request that the helper of a person has taken; returns its id."""
    request = put_request(
        pool_id=pool.pk,
        user_id=person.pk,
        operation=HelperOperation.CANCEL,
        subject="4711",
        arguments={"handles": ["4711"]},
    )
    take_request(pool=pool, user=person, helper=_HELPER)
    return request.pk
