"""Services for service accounts: identities of one project, for automation.

Owners create, change, enable and delete them. Maintainers make and revoke their tokens, disable
them, and let schedules run as them. No service account can do any of this.
"""

from collections.abc import Sequence

from django.db import IntegrityError, transaction

from portal.accounts import audit
from portal.accounts.models import (
    ApiToken,
    Membership,
    Project,
    ServiceAccount,
    ServiceAccountOperator,
    User,
)
from portal.accounts.models.service_accounts import address_of_account
from portal.accounts.models.tenancy import role_in
from portal.accounts.principal import Principal
from portal.accounts.services.members import lock_group
from portal.accounts.services.tokens import NewToken, audited_token, scopes_within, store_token
from portal.accounts.signals import (
    ServiceAccountEnded,
    send_accounts_changed,
    service_account_ended,
)
from portal.core import clock
from portal.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from portal.core.text import clean_slug, forbidden_in_text
from slipway.schemas.accounts import (
    PRESET_SCOPES,
    SERVICE_SCOPES,
    Role,
    Scope,
    ServiceAccountState,
    TokenPreset,
)

MOST_ACCOUNTS = 100
# Usable tokens of an account. Two are enough to replace one without a gap.
MOST_TOKENS = 50
# `new` is an address of the page, and `me` the caller where a schedule names an account.
_RESERVED = ("new", "me")


def create_service_account(
    *, project: Project, by: User, name: str, role: Role, description: str = ""
) -> ServiceAccount:
    """Create a service account with a role below owner and not above one's own.

    Raises InvalidInput for a bad name or role, Conflict for a name that was used before or too many
    accounts, Forbidden for a role above one's own.
    """
    name, description = clean_slug(name, field="name"), _clean_description(description)
    if name in _RESERVED:
        raise InvalidInput(
            f"A service account cannot be named {name}.",
            code="reserved_name",
            field="name",
            next_step="Choose another name, such as nightly.",
        )
    try:
        with transaction.atomic():
            lock_group(project)
            _check_role(project, by, role)
            _require_room(project)
            user = User.objects.create_user(
                address_of_account(name, project), None, name=name, is_service_account=True
            )
            account = ServiceAccount.objects.create(
                user=user,
                project=project,
                membership=Membership.objects.create(user=user, project=project, role=role),
                name=name,
                description=description,
                created_by=by,
            )
            _record("service_account.create", account, after=_recorded(account))
    except IntegrityError as error:
        earlier = ServiceAccount.objects.filter(project=project, name=name).first()
        verb = "was" if earlier is not None and earlier.deleted_at is not None else "is"
        raise Conflict(
            f"There {verb} a service account {name} in this project.",
            code="name_taken",
            field="name",
            next_step="Choose another name: history keeps the names of deleted accounts.",
        ) from error
    return account


def change_service_account(
    *, account: ServiceAccount, by: User, role: Role | None = None, description: str | None = None
) -> ServiceAccount:
    """Change the attributes given. Raises Forbidden for a role above one's own. Idempotent."""
    with transaction.atomic():
        account = _locked(account)
        before = _recorded(account)
        if role is not None and account.membership is not None and role != account.role:
            _check_role(account.project, by, role)
            account.membership.role = role
            account.membership.save(update_fields=["role"])
        if description is not None:
            account.description = _clean_description(description)
            account.save(update_fields=["description"])
        old, new = audit.difference(before, _recorded(account))
        if new:
            _record("service_account.change", account, before=old, after=new)
    return account


def disable_service_account(*, account: ServiceAccount, by: User) -> ServiceAccount:
    """Let its tokens and schedules do nothing, at once, until it is enabled. Idempotent."""
    with transaction.atomic():
        account = _locked(account)
        if account.state is ServiceAccountState.ACTIVE:
            _end(account, f"The service account {account.name} was disabled by {by.display_name}.")
            _record("service_account.disable", account)
    return account


def enable_service_account(*, account: ServiceAccount) -> ServiceAccount:
    """Let its tokens work again. Its schedules stay paused until somebody resumes them."""
    with transaction.atomic():
        account = _locked(account)
        if account.state is ServiceAccountState.DISABLED:
            account.user.is_active = True
            account.user.save(update_fields=["is_active"])
            _record("service_account.enable", account)
    return account


def delete_service_account(*, account: ServiceAccount, by: User) -> None:
    """End an account for good, with its tokens. Its schedules pause, and history keeps its name."""
    with transaction.atomic():
        account = _locked(account)
        _end(account, f"The service account {account.name} was deleted by {by.display_name}.")
        now, membership = clock.now(), account.membership
        _record("service_account.delete", account, before=_recorded(account))
        ApiToken.objects.filter(user=account.user, revoked_at__isnull=True).update(revoked_at=now)
        account.membership, account.deleted_at = None, now
        account.save(update_fields=["membership", "deleted_at"])
        if membership is not None:
            membership.delete()


def create_service_token(
    *,
    account: ServiceAccount,
    by: Principal,
    name: str,
    preset: TokenPreset | None = None,
    scopes: Sequence[Scope] = (),
    expires_in_days: int = 90,
) -> NewToken:
    """Create a token that acts as the account, in its project alone.

    Raises InvalidInput for a bad name or scope, Forbidden for more access than the caller has,
    Conflict for a disabled account or too many tokens.
    """
    require_use(account, by.user)
    requested = scopes_within(by, _scopes_of(preset, scopes))
    with transaction.atomic():
        account = _locked(account)
        if account.state is not ServiceAccountState.ACTIVE:
            raise Conflict(
                f"The service account {account.name} is disabled.",
                code="account_disabled",
                next_step="Ask an owner of the project to enable it.",
            )
        if ApiToken.objects.filter(user=account.user).usable().count() >= MOST_TOKENS:
            raise Conflict(
                f"{account.name} has {MOST_TOKENS} tokens that work, which is the most.",
                code="too_many_tokens",
                next_step="Revoke those that are no longer needed.",
            )
        made = store_token(
            account.user, name, requested, account.project, expires_in_days, created_by=by.user
        )
        note_operator(account, by.user)
        after = {"token": made.token.name, **audited_token(made.token)}
        _record("service_account.token", account, after=after)
    return made


def revoke_service_token(*, account: ServiceAccount, token_id: str) -> None:
    """Revoke a token of the account. Idempotent. Raises NotFound for any other token."""
    with transaction.atomic():
        token = ApiToken.objects.filter(pk=token_id, user=account.user).first()
        if token is None:
            raise NotFound
        usable = ApiToken.objects.filter(pk=token.pk, revoked_at__isnull=True)
        if usable.update(revoked_at=clock.now()):
            before = {"token": token.name, **audited_token(token)}
            _record("service_account.revoke_token", account, before=before)


def may_use(account: ServiceAccount, by: User) -> bool:
    """Return True if a person may act as the account: a maintainer, so with its role or more.

    Else somebody could do by an account what their own role forbids.
    """
    role = role_in(by, account.project)
    return not by.is_service_account and role is not None and role.at_least(Role.MAINTAINER)


def require_use(account: ServiceAccount, by: User) -> None:
    """Raise Forbidden unless a person may act as the account."""
    if not may_use(account, by):
        raise Forbidden(
            f"Only maintainers of the project use the service account {account.name}.",
            code="person_needed" if by.is_service_account else "role_too_low",
            next_step="Ask a maintainer or an owner of the project.",
        )


def note_operator(account: ServiceAccount, person: User) -> None:
    """Remember that a person has used the account, so that they do not approve its requests."""
    ServiceAccountOperator.objects.get_or_create(account=account, person=person)


def _end(account: ServiceAccount, reason: str) -> None:
    account.user.is_active = False
    account.user.save(update_fields=["is_active"])
    service_account_ended.send_on_commit(ServiceAccountEnded(account.user_id, reason))


def _locked(account: ServiceAccount) -> ServiceAccount:
    """Return the account as it is now, locked. Raise NotFound if it was deleted."""
    lock_group(account.project)
    fresh = ServiceAccount.objects.of_project(account.project).filter(pk=account.pk).first()
    if fresh is None:
        raise NotFound
    return fresh


def _check_role(project: Project, by: User, role: Role) -> None:
    held = role_in(by, project)
    if by.is_service_account or held is None or not held.at_least(role) or role == Role.OWNER:
        raise Forbidden(
            f"A service account cannot get the role {role.value} from you.",
            code="role_too_low",
            field="role",
            next_step="Choose a role up to your own, and not owner.",
        )


def _require_room(project: Project) -> None:
    if ServiceAccount.objects.of_project(project).count() >= MOST_ACCOUNTS:
        raise Conflict(
            f"The project has {MOST_ACCOUNTS} service accounts, which is the most.",
            code="too_many_accounts",
            next_step="Delete one that is no longer needed.",
        )


def _scopes_of(preset: TokenPreset | None, scopes: Sequence[Scope]) -> list[Scope]:
    """Return the scopes of a preset that service accounts can have, or the given ones."""
    if preset is not None and scopes:
        raise InvalidInput(
            "A token has either a preset or scopes of its own, not both.",
            field="preset",
            next_step="Leave out preset or scopes.",
        )
    if preset is not None:
        return [scope for scope in PRESET_SCOPES[preset] if scope in SERVICE_SCOPES]
    beyond = sorted(set(scopes) - SERVICE_SCOPES)
    if beyond:
        raise InvalidInput(
            f"Service accounts cannot have the scope {Scope(beyond[0]).value}.",
            code="person_needed",
            field="scopes",
            next_step=f"Choose among {', '.join(sorted(SERVICE_SCOPES))}.",
        )
    return list(scopes)


def _clean_description(text: str) -> str:
    forbidden_in_text(text, field="description")
    return " ".join(text.split())[:500]


def _recorded(account: ServiceAccount) -> audit.Facts:
    return {"role": account.role.value, "description": account.description}


def _record(
    verb: str,
    account: ServiceAccount,
    *,
    before: audit.Facts | None = None,
    after: audit.Facts | None = None,
) -> None:
    audit.record(
        verb,
        kind="service_account",
        target=account,
        label=account.name,
        project=account.project,
        before=before,
        after=after,
    )
    send_accounts_changed(account.project_id, "members")
