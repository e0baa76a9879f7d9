"""Idempotency keys: the response to a keyed POST is stored together with its change.

After the draft `draft-ietf-httpapi-idempotency-key-header`. The record commits in the same
transaction as the change, so a portal killed between the commit and the answer still gives the same
answer to the repeated request, and one killed before has done nothing.
"""

import hashlib
import re
from datetime import timedelta

from cryptography.fernet import Fernet
from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from portal.api.models import IdempotencyRecord
from portal.core import clock
from portal.core.errors import InvalidInput

HEADER = "Idempotency-Key"
KEPT = timedelta(hours=24)
_KEY = re.compile(r"\A[\x21-\x7e]{1,128}\Z")


def key_of(request: HttpRequest) -> str | None:
    """Return the request's key, or None. Raises InvalidInput for a malformed one."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    if not _KEY.match(key):
        raise InvalidInput(
            "The Idempotency-Key must be 1 to 128 visible ASCII characters.",
            field=HEADER,
            next_step="Send a UUID.",
        )
    return key


def fingerprint_of(request: HttpRequest, body: bytes) -> str:
    """Return a digest of the request."""
    digest = hashlib.sha256()
    for part in (request.method or "", request.get_full_path(), request.content_type or ""):
        digest.update(part.encode() + b"\0")
    digest.update(body)
    return digest.hexdigest()


def claim(principal: str, key: str, fingerprint: str) -> tuple[IdempotencyRecord, bool]:
    """Insert the record, or return the existing one. Call it inside the transaction.

    A concurrent request with the same key waits here until the first has committed. Raises
    InvalidInput when the key was used for another request.
    """
    IdempotencyRecord.objects.filter(
        principal=principal, key=key, created_at__lt=clock.now() - KEPT
    ).delete()
    record, fresh = IdempotencyRecord.objects.get_or_create(
        principal=principal, key=key, defaults={"fingerprint": fingerprint}
    )
    if not fresh and record.fingerprint != fingerprint:
        raise InvalidInput(
            "This Idempotency-Key was used for a different request.",
            code="idempotency_key_reused",
            field=HEADER,
            next_step="Send a new key with a new request.",
        )
    return record, fresh


def remember(record: IdempotencyRecord, response: HttpResponse) -> None:
    """Store the response in the record. Call it inside the transaction."""
    record.status = response.status_code
    record.content_type = response.headers.get("Content-Type", "")
    record.body = _cipher().encrypt(response.content)
    record.save(update_fields=["status", "content_type", "body"])


def replay(record: IdempotencyRecord) -> HttpResponse:
    """Return the stored response."""
    response = HttpResponse(
        _cipher().decrypt(bytes(record.body)),
        status=record.status,
        content_type=record.content_type,
    )
    response.headers["Idempotent-Replayed"] = "true"
    return response


def sweep_expired() -> int:
    """Delete records older than a day. Returns their number."""
    deleted, _ = IdempotencyRecord.objects.filter(created_at__lt=clock.now() - KEPT).delete()
    return deleted


def _cipher() -> Fernet:
    return Fernet(settings.SLIPWAY_SECRETS_KEY)


def keep_or_undo(record: IdempotencyRecord, response: HttpResponse) -> None:
    """Commit a success under its key. Roll back everything else, including the key."""
    if 200 <= response.status_code < 300 and not response.streaming:
        remember(record, response)
    else:
        transaction.set_rollback(True)
