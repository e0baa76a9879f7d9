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
    name = clean_name(name)
    requested = sorted({Scope(scope).value for scope in scopes})
    if not requested:
        raise InvalidInput(
            "A token needs at least one scope.",
            code="scopes_missing",
            field="scopes",
            next_step="Choose a preset or at least one scope.",
        )
    if Scope.ADMIN in requested and not by.user.is_administrator:
        raise Forbidden(
            "Only administrators can create tokens with the scope admin.",
            code="not_administrator",
            field="scopes",
            next_step="Leave the scope admin out.",
        )
    beyond = [scope for scope in requested if not by.allows(Scope(scope))]
    if beyond:
        raise Forbidden(
            f"This token cannot create one with the scope {beyond[0]}.",
            code="missing_scope",
            field="scopes",
            next_step="Sign in to the portal and create the token there.",
        )
    secret = new_secret()
    with transaction.atomic():
        token = ApiToken.objects.create(
            user=by.user,
            name=name,
            prefix=token_prefix(secret),
            token_hash=hash_of(secret),
            scopes=requested,
            project=project,
            expires_at=clock.now() + timedelta(days=expires_in_days),
        )
        audit.record(
            "token.create",
            kind="token",
            target=token,
            label=name,
            project=project,
            after={"scopes": requested, "expires_at": token.expires_at.isoformat()}
            if token.expires_at
            else {"scopes": requested},
        )
        send_accounts_changed(by.user.pk, "tokens")
    return NewToken(token, secret)


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
