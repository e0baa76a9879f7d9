"""Signed links that give their bearer access to one file for a few minutes, under the same policy.

A link names its creator. When it is used, that person (and token, if one was used) is authorized
afresh by the same gate as any request: removed, suspended or revoked means that the link is dead at
once. The signature is an HMAC with the installation's key, compared in constant time by Django.
"""

import hmac
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django.core import signing

from portal.accounts.models import ApiToken, User
from portal.accounts.principal import Principal
from portal.core import clock
from portal.core.errors import InvalidInput

Method = Literal["GET", "PUT"]
LONGEST = timedelta(minutes=15)
_SALT = "portal.storage.link"
_SESSION_MARK_LENGTH = 16


@dataclass(frozen=True)
class Grant:
    """Grant of a link: one method on one file, until a given time, on behalf of a person.

    An upload link (`PUT`) names the project and the file's name. Its file does not exist yet, so
    it works once.
    """

    method: Method
    file_id: str
    expires_at: datetime
    project_id: str = ""
    name: str = ""


@dataclass(frozen=True)
class SignedLink:
    """A grant and its signed text."""

    grant: Grant
    text: str


def sign(grant: Grant, *, by: Principal) -> SignedLink:
    """Return the link of a grant. Raise InvalidInput for a lifetime over LONGEST."""
    lifetime = grant.expires_at - clock.now()
    if not timedelta() < lifetime <= LONGEST:
        raise InvalidInput(
            f"A link can be valid for 1 second to {LONGEST // timedelta(minutes=1)} minutes.",
            field="expires_in_seconds",
            next_step="Choose a shorter time; you can create a new link at any time.",
        )
    text = signing.dumps(
        {
            "m": grant.method,
            "f": grant.file_id,
            "e": grant.expires_at.timestamp(),
            "p": grant.project_id,
            "n": grant.name,
            "u": by.user.pk,
            "t": by.token.pk if by.token else "",
            "s": "" if by.token else _session_mark(by.user),
        },
        salt=_SALT,
    )
    return SignedLink(grant, text)


def redeem(text: str, *, method: str, file_id: str) -> tuple[Grant, Principal] | None:
    """Return the grant of a link and its creator, or None when it is not valid.

    Not valid are links that are forged, expired, for another file or method, created by a person
    who is suspended or has changed the password since, or by a token that is revoked or expired.
    The response does not disclose which.
    """
    try:
        document: dict[str, Any] = signing.loads(text, salt=_SALT, max_age=LONGEST)
    except signing.BadSignature:
        return None
    grant = Grant(
        method=document["m"],
        file_id=document["f"],
        expires_at=datetime.fromtimestamp(document["e"], UTC),
        project_id=document["p"],
        name=document["n"],
    )
    if (grant.method, grant.file_id) != (method, file_id) or grant.expires_at <= clock.now():
        return None
    principal = _link_principal(document["u"], document["t"], document["s"])
    return (grant, principal) if principal else None


def _link_principal(user_id: str, token_id: str, session_mark: str) -> Principal | None:
    if token_id:
        tokens = ApiToken.objects.usable().select_related("user", "project")
        token = tokens.filter(pk=token_id, user=user_id).first()
        return Principal(token.user, token) if token else None
    user = User.objects.filter(pk=user_id, is_active=True).first()
    if user is None or not hmac.compare_digest(session_mark, _session_mark(user)):
        return None
    return Principal(user)


def _session_mark(user: User) -> str:
    """Return a value that changes when a new password ends the person's sessions."""
    return user.get_session_auth_hash()[:_SESSION_MARK_LENGTH]
