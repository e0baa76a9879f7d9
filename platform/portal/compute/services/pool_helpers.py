"""Requests to the helpers of people, in pools where Slipway runs no command itself.

An engine puts a request, a helper of that person takes and answers it, and the engine reads the
answer the next time it is asked. A helper sees the requests of its own person in its own pool
alone. One that dies leaves its request, which another helper gets after REQUEST_EXPIRES_S: what may
have been done already is looked up by the name of the job before it is done again.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from cryptography.fernet import Fernet
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q, Sum

from portal.accounts.models import User
from portal.accounts.principal import Principal
from portal.compute.engines import engine_kinds
from portal.compute.lifecycle import HelperRequestState, helper_sources
from portal.compute.models import HelperRequest, Pool, PoolAccount, PoolHelper
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.core.notify import notify_listeners
from slipway.schemas.pool_helpers import (
    REQUEST_EXPIRES_S,
    HelperAnswerIn,
    HelperOperation,
    HelperStatus,
)
from slipway.schemas.truncation import shorten

# A helper asks for work every 15 s, and executes a request within 50 s.
_AWAY_AFTER: Final = timedelta(seconds=40)
_EXPIRES: Final = timedelta(seconds=REQUEST_EXPIRES_S)
# Settled requests are only needed until the engine has read their answer.
_KEPT: Final = timedelta(days=7)
# The same question is not put to Slurm more often than this.
ASK_EVERY: Final = timedelta(seconds=5)


def uses_helpers(pool: Pool) -> bool:
    """Return True if only the helpers of people reach the engine of a pool."""
    return engine_kinds()[pool.engine].uses_helpers(pool.settings)


def helper_command(pool: Pool) -> str:
    """Return the command that a person runs on a login node."""
    return f"slipway pool helper {pool.name}"


def is_helper_running(pool: Pool, user_id: str) -> bool:
    """Return True if a helper of a person has asked for work lately, or executes a request."""
    now = clock.now()
    rows = PoolHelper.objects.filter(pool=pool, user_id=user_id, seen_at__gt=now - _AWAY_AFTER)
    if rows.exists():
        return True
    taken = HelperRequest.objects.filter(pool=pool, user_id=user_id)
    taken = taken.filter(state=HelperRequestState.TAKEN, taken_at__gt=now - _EXPIRES)
    return taken.exists()


def helper_state(pool: Pool, user_id: str) -> str:
    """Return the state of a person's helper for people, "" in a pool without helpers."""
    if not uses_helpers(pool):
        return ""
    return "helper running" if is_helper_running(pool, user_id) else "helper not running"


def absence_reason(pool: Pool, user: User) -> str:
    """Return why work of a person waits for their helper, "" if it does not."""
    if not uses_helpers(pool) or is_helper_running(pool, user.pk):
        return ""
    return (
        f"the helper of {user.display_name} is not running on the login node: start it with "
        f"`{helper_command(pool)}`."
    )


def helper_pool(principal: Principal, name: str) -> Pool:
    """Return the pool of a helper: one that the person may use, or has an account in.

    Work there must be cancelled and reported on after the pool has been closed as well. Raises
    NotFound, and InvalidInput for a pool without helpers.
    """
    visible = Pool.objects.visible_to(principal).values("pk")
    linked = PoolAccount.objects.filter(user=principal.user).values("pool")
    pool = Pool.objects.present().filter(Q(pk__in=visible) | Q(pk__in=linked), name=name).first()
    if pool is None:
        raise NotFound
    if not uses_helpers(pool):
        raise InvalidInput(
            f"Pool {name} is not reached by helpers of people.",
            code="no_helper_needed",
            field="pool",
            next_step="Submit a job there; nothing has to run on a login node.",
        )
    return pool


# For engines


def put_request(
    *,
    pool_id: str,
    user_id: str,
    operation: HelperOperation,
    subject: str = "",
    arguments: Mapping[str, Any],
    script: str = "",
) -> HelperRequest:
    """Return the request for an operation on a subject, created if there is none."""
    with transaction.atomic():
        row, is_new = HelperRequest.objects.get_or_create(
            pool_id=pool_id,
            user_id=user_id,
            operation=operation.value,
            subject=subject,
            defaults={
                "arguments": dict(arguments),
                "script": _cipher().encrypt(script.encode()) if script else b"",
            },
        )
        if is_new:
            _announce(pool_id, user_id)
    return row


def ask_again(row: HelperRequest, arguments: Mapping[str, Any], script: str = "") -> None:
    """Have an answered request executed once more, unless it was answered a moment ago."""
    with transaction.atomic():
        answered = HelperRequest.objects.filter(
            pk=row.pk, state=HelperRequestState.ANSWERED, answered_at__lte=clock.now() - ASK_EVERY
        )
        if answered.update(
            state=HelperRequestState.WAITING,
            arguments=dict(arguments),
            script=_cipher().encrypt(script.encode()) if script else b"",
        ):
            _announce(row.pool_id, row.user_id)


def withdraw_request(*, pool_id: str, operation: HelperOperation, subject: str) -> bool:
    """Withdraw a request that no helper has ever taken. Returns whether it never will be."""
    rows = HelperRequest.objects.filter(
        pool_id=pool_id, operation=operation.value, subject=subject, taken_at__isnull=True
    )
    rows = rows.filter(state__in=helper_sources(HelperRequestState.WITHDRAWN))
    return bool(rows.update(state=HelperRequestState.WITHDRAWN, script=b""))


def person_proving(pool_id: str, code: str) -> str | None:
    """Return the id of the person who proves an account with a code."""
    accounts = PoolAccount.objects.filter(pool_id=pool_id, code=code)
    return accounts.values_list("user_id", flat=True).first()


def refuse_proof(pool_id: str, code: str, problem: str) -> None:
    """End a proof that cannot succeed, with the reason."""
    accounts = PoolAccount.objects.filter(pool_id=pool_id, code=code)
    accounts.update(code="", problem=shorten(problem, 300))


def _announce(pool_id: str, user_id: str) -> None:
    """Wake the helpers of a person. Call it in the transaction of the change."""
    helper, _ = PoolHelper.objects.get_or_create(pool_id=pool_id, user_id=user_id)
    PoolHelper.objects.filter(pk=helper.pk).update(version=F("version") + 1)
    notify_listeners()


# For helpers


def take_request(*, pool: Pool, user: User, helper: str) -> HelperRequest | None:
    """Give the oldest request that waits to a helper of its person, None if none waits.

    A request that its helper has not answered in time waits again first. Idempotent for none.
    """
    now = clock.now()
    PoolHelper.objects.update_or_create(pool=pool, user=user, defaults={"seen_at": now})
    rows = HelperRequest.objects.filter(pool=pool, user=user)
    late = rows.filter(state=HelperRequestState.TAKEN, taken_at__lte=now - _EXPIRES)
    late.update(state=HelperRequestState.WAITING)
    waiting = rows.filter(state__in=helper_sources(HelperRequestState.TAKEN))
    for row in waiting.order_by("pk")[:5]:
        changes = {"taken_by": helper, "taken_at": now}
        if waiting.filter(pk=row.pk).update(state=HelperRequestState.TAKEN, **changes):
            row.refresh_from_db()
            return row
    settled = rows.filter(
        state__in=[HelperRequestState.ANSWERED, HelperRequestState.WITHDRAWN],
        created_at__lt=now - _KEPT,
    )
    settled.filter(Q(answered_at=None) | Q(answered_at__lt=now - _KEPT)).delete()
    return None


def script_of(row: HelperRequest) -> str:
    """Return the batch script of a request, "" if it has none."""
    return _cipher().decrypt(bytes(row.script)).decode() if row.script else ""


def answer_request(*, pool: Pool, user: User, request: str, answer: HelperAnswerIn) -> None:
    """Store the answer of the helper that has taken a request.

    Raises NotFound for a request of another person or pool, Conflict if another helper has it by
    now, and InvalidInput for a submitted job without its number.
    """
    rows = HelperRequest.objects.filter(pk=request, pool=pool, user=user)
    row = rows.first()
    if row is None:
        raise NotFound
    is_done = answer.status is HelperStatus.DONE
    if is_done and row.operation == HelperOperation.SUBMIT and answer.handle is None:
        raise InvalidInput(
            "The job was submitted, so its number is needed.",
            field="handle",
            next_step="Give the number that sbatch printed.",
        )
    now = clock.now()
    changes: dict[str, Any] = {"answered_at": now, "script": b"", "problem": ""}
    if answer.status is HelperStatus.AWAY:
        changes["problem"] = shorten(answer.text or "Slurm does not answer", 500)
    else:
        content = answer.model_dump(mode="json", exclude={"helper"})
        changes["answer"] = content | {"handles": row.arguments.get("handles", [])}
    taken = rows.filter(
        state__in=helper_sources(HelperRequestState.ANSWERED), taken_by=answer.helper
    )
    if not taken.update(state=HelperRequestState.ANSWERED, **changes):
        raise Conflict(
            "This helper does not have the request: it took too long, or has answered it.",
            code="request_not_taken",
            next_step="Take the next request.",
        )
    PoolHelper.objects.filter(pool=pool, user=user).update(seen_at=now)


def waiting_requests(pool: Pool, user: User) -> int:
    """Return how many requests wait for the helper of a person."""
    rows = HelperRequest.objects.filter(pool=pool, user=user, state=HelperRequestState.WAITING)
    return rows.count()


def helper_version(user: User) -> int:
    """Return the sum of the versions of a person's helpers, for which a helper waits."""
    helpers = PoolHelper.objects.filter(user=user)
    return helpers.aggregate(version=Sum("version"))["version"] or 0


def _cipher() -> Fernet:
    return Fernet(settings.SLIPWAY_SECRETS_KEY)
