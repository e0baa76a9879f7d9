"""The token user code speaks with: good for its project, while its workload runs, and no longer.

It is derived, not stored: the id of the workload and the epoch, signed with the key that lives
outside the database. Ending the epoch ends the token, for a zombie on a lost node too.
"""

import base64
import hashlib
import hmac
import re

from django.conf import settings

from portal.accounts.models import ApiToken
from portal.accounts.principal import Principal
from portal.workloads.lifecycle import ACTIVE
from portal.workloads.models import Workload
from portal.workloads.ports import kind_of
from slipway.schemas.truncation import shorten_name

PREFIX = "slw_"
_SHAPE = re.compile(
    r"\Aslw_(?P<body>[0-9a-z]{26})_(?P<epoch>\d{1,9})_(?P<mark>[A-Za-z0-9_-]{43})\Z"
)


def has_workload_shape(text: str) -> bool:
    """Return True if `text` has the format of a workload's token."""
    return _SHAPE.match(text) is not None


def token_of(workload_id: str, epoch: int) -> str:
    """Return the token of a workload's epoch, the same each time."""
    body = workload_id.removeprefix("wl_")
    return f"{PREFIX}{body}_{epoch}_{_mark(body, epoch)}"


def _mark(body: str, epoch: int) -> str:
    key = hashlib.sha256(f"workload token\0{settings.SLIPWAY_SECRETS_KEY}".encode()).digest()
    digest = hmac.new(key, f"{body}\0{epoch}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def principal_behind(secret: str) -> Principal | None:
    """Return who submitted the workload, confined to its project and to the scopes of its kind."""
    match = _SHAPE.match(secret)
    if match is None:
        return None
    body, epoch = match["body"], int(match["epoch"])
    if not hmac.compare_digest(match["mark"], _mark(body, epoch)):
        return None
    active = Workload.objects.filter(
        pk=f"wl_{body}",
        epoch=epoch,
        state__in=[state.value for state in ACTIVE],
        submitted_by__is_active=True,
    )
    workload = active.select_related("submitted_by", "project").first()
    if workload is None:
        return None
    return Principal(workload.submitted_by, _as_token(workload, secret))


def _as_token(workload: Workload, secret: str) -> ApiToken:
    """Describe the right as a token of the person. It is never saved."""
    return ApiToken(
        id=workload.pk,
        user=workload.submitted_by,
        name=shorten_name(f"{workload.kind} {workload.name}", 100),
        prefix=secret[:12],
        scopes=[scope.value for scope in kind_of(workload.kind).scopes],
        project=workload.project,
    )
