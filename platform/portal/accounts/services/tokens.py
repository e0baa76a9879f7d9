"""Services for API tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import ApiToken, Project, User
from portal.accounts.principal import Principal
from portal.accounts.signals import send_accounts_changed
from portal.accounts.tokens import hash_of, new_secret, token_prefix
from portal.core import clock
from portal.core.errors import Forbidden, InvalidInput, NotFound
from portal.core.text import clean_name
from slipway.schemas.accounts import Scope


@dataclass(frozen=True)
class NewToken:
    """A token and its secret, which is not stored."""

    token: ApiToken
    secret: str


def create_token(
    *,
    by: Principal,
    name: str,
    scopes: Sequence[Scope],
    project: Project | None = None,
    expires_in_days: int = 90,
) -> NewToken:
    """Create a token for oneself. A token can only create tokens with scopes it has itself.

    Raises InvalidInput for a bad name or scope, Forbidden when the new token would have more
    access.
    """
    if Scope.ADMIN in map(Scope, scopes) and not by.user.is_administrator:
        raise Forbidden(
            "Only administrators can create tokens with the scope admin.",
            code="not_administrator",
            field="scopes",
            next_step="Leave the scope admin out.",
        )
    requested = scopes_within(by, scopes)
    with transaction.atomic():
        made = store_token(by.user, name, requested, project, expires_in_days)
        audit.record(
            "token.create",
            kind="token",
            target=made.token,
            label=made.token.name,
            project=project,
            after=audited_token(made.token),
        )
        send_accounts_changed(by.user.pk, "tokens")
    return made


def scopes_within(by: Principal, scopes: Sequence[Scope]) -> list[Scope]:
    """Return the scopes of a new token, sorted.

    Raises InvalidInput for none, and Forbidden for a scope that the caller's own token lacks.
    """
    requested = sorted({Scope(scope) for scope in scopes})
    if not requested:
        raise InvalidInput(
            "A token needs at least one scope.",
            code="scopes_missing",
            field="scopes",
            next_step="Choose a preset or at least one scope.",
        )
    beyond = [scope for scope in requested if not by.allows(scope)]
    if beyond:
        raise Forbidden(
            f"This token cannot create one with the scope {beyond[0].value}.",
            code="missing_scope",
            field="scopes",
            next_step="Sign in to the portal and create the token there.",
        )
    return requested


def store_token(
    user: User,
    name: str,
    scopes: Sequence[Scope],
    project: Project | None,
    expires_in_days: int,
    created_by: User | None = None,
) -> NewToken:
    """Store a token that acts as `user`. Raises InvalidInput for a bad name."""
    secret = new_secret()
    token = ApiToken.objects.create(
        user=user,
        created_by=created_by,
        name=clean_name(name),
        prefix=token_prefix(secret),
        token_hash=hash_of(secret),
        scopes=[scope.value for scope in scopes],
        project=project,
        expires_at=clock.now() + timedelta(days=expires_in_days),
    )
    return NewToken(token, secret)


def audited_token(token: ApiToken) -> audit.Facts:
    """Return the attributes of a token that the audit log records."""
    expiry = {"expires_at": token.expires_at.isoformat()} if token.expires_at else {}
    return {"scopes": token.scopes, **expiry}


def revoke_token(*, by: User, token_id: str) -> None:
    """Revoke one's own token. Idempotent. Raises NotFound for anybody else's token."""
    with transaction.atomic():
        token = ApiToken.objects.filter(pk=token_id, user=by).select_related("project").first()
        if token is None:
            raise NotFound
        revoked = ApiToken.objects.filter(pk=token_id, revoked_at__isnull=True).update(
            revoked_at=clock.now()
        )
        if revoked:
            audit.record(
                "token.revoke",
                kind="token",
                target=token,
                label=token.name,
                project=token.project,
                before={"scopes": token.scopes},
            )
            send_accounts_changed(by.pk, "tokens")


def revoke_all_tokens(*, user: User) -> int:
    """Revoke every API token of the person. Return how many of them were still usable."""
    with transaction.atomic():
        usable = ApiToken.objects.filter(user=user).usable()
        names = list(usable.order_by("pk").values_list("name", flat=True))
        revoked = ApiToken.objects.filter(user=user, revoked_at__isnull=True)
        revoked.update(revoked_at=clock.now())
        audit.record(
            "token.revoke_all",
            kind="user",
            target=user,
            label=user.email,
            after={"tokens": len(names), "names": names[:100]},
        )
        send_accounts_changed(user.pk, "tokens")
    return len(names)
