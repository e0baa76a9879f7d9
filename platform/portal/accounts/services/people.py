"""Services for people: administrators suspend and promote, a person edits and signs out."""

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Q

from portal.accounts import audit
from portal.accounts.models import Membership, Project, Team, User
from portal.accounts.models.people import SERVICE_SUFFIX
from portal.accounts.models.tenancy import Group
from portal.accounts.oidc import end_service_sign_ins
from portal.accounts.request_origin import with_user
from portal.accounts.services.members import lock_group
from portal.accounts.services.tokens import revoke_all_tokens
from portal.accounts.signals import send_accounts_changed
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.core.text import clean_name
from slipway.schemas.accounts import Role


def clean_person_name(name: str) -> str:
    """Return the normalized name of a person. Raise InvalidInput for a name of others."""
    name = clean_name(name)
    if name.casefold().endswith(SERVICE_SUFFIX.strip()):
        raise InvalidInput(
            "Only service accounts have names that end so.",
            field="name",
            next_step=f"Leave out {SERVICE_SUFFIX.strip()}.",
        )
    return name


def rename_self(*, user: User, name: str) -> User:
    """Change one's own name."""
    name = clean_person_name(name)
    with transaction.atomic():
        if user.name != name:
            User.objects.filter(pk=user.pk).update(name=name)
            audit.record(
                "user.rename",
                kind="user",
                target=user,
                label=user.email,
                before={"name": user.name},
                after={"name": name},
            )
            user.name = name
    return user


def sign_out_everywhere(*, user: User, keep_session: str | None = None) -> int:
    """End every session of the person except `keep_session`. Return the number ended.

    Services the person signed in to by OpenID Connect have to ask again.
    """
    with transaction.atomic():
        keys = list(
            UserSession.objects.filter(user=user)
            .exclude(session_key=keep_session or "")
            .values_list("session_key", flat=True)
        )
        Session.objects.filter(session_key__in=keys).delete()
        UserSession.objects.filter(session_key__in=keys).delete()
        end_service_sign_ins(user)
        audit.record(
            "user.sign_out_everywhere",
            kind="user",
            target=user,
            label=user.email,
            after={"sessions": len(keys)},
        )
        send_accounts_changed(user.pk, "sessions")
    return len(keys)


def end_access(*, user: User, tokens: bool) -> None:
    """End all sessions and, if asked for, revoke all API tokens, as after a password change.

    The person is recorded as the actor, since the link in a mail is used without a session.
    """
    with transaction.atomic():
        with_user(user)
        sign_out_everywhere(user=user)
        if tokens:
            revoke_all_tokens(user=user)


def end_session(*, user: User, session_id: int) -> None:
    """End one session of the person. Raise NotFound for a session of anybody else."""
    with transaction.atomic():
        session = UserSession.objects.filter(user=user, pk=session_id).first()
        if session is None:
            raise NotFound
        Session.objects.filter(session_key=session.session_key).delete()
        session.delete()
        audit.record("user.end_session", kind="user", target=user, label=user.email)
        send_accounts_changed(user.pk, "sessions")


def change_account(
    *,
    user_id: str,
    is_active: bool | None = None,
    is_administrator: bool | None = None,
    hand_over_to: str | None = None,
) -> User:
    """Suspend or reinstate a person, grant or revoke the administrator role.

    Suspending ends sessions and tokens on their next request. Raises NotFound, Conflict when the
    last administrator would vanish, or when the person is the last owner somewhere and
    `hand_over_to` (another person's id) is not given.
    """
    with transaction.atomic():
        # Lock order of all such changes: every administrator and the person, by id.
        people = User.objects.people()
        concerned = people.filter(Q(is_administrator=True) | Q(pk=user_id)).order_by("pk")
        locked = {user.pk: user for user in concerned.select_for_update(no_key=True)}
        user = locked.get(user_id)
        if user is None:
            raise NotFound
        old = {"is_active": user.is_active, "is_administrator": user.is_administrator}
        user.is_active = old["is_active"] if is_active is None else is_active
        if is_administrator is not None:
            user.is_administrator = is_administrator
        new = {"is_active": user.is_active, "is_administrator": user.is_administrator}
        before, after = audit.difference(old, new)
        if not after:
            return user
        _require_another_administrator(user)
        if before.get("is_active"):
            _transfer_ownership(user, hand_over_to)
            sign_out_everywhere(user=user)
        user.save(update_fields=["is_active", "is_administrator"])
        audit.record(
            "user.change", kind="user", target=user, label=user.email, before=before, after=after
        )
        send_accounts_changed(user.pk, "account")
    return user


def _require_another_administrator(user: User) -> None:
    if user.is_active and user.is_administrator:
        return
    others = User.objects.filter(is_active=True, is_administrator=True).exclude(pk=user.pk)
    if not others.exists():
        raise Conflict(
            f"{user.email} is the last administrator.",
            code="last_administrator",
            next_step="Make another user an administrator first.",
        )


def _transfer_ownership(user: User, heir_id: str | None) -> None:
    orphaned = []
    owned = Membership.objects.filter(user=user, role=Role.OWNER).select_related("team", "project")
    for membership in owned.order_by("pk"):
        group = lock_group(membership.group)
        reaching = (
            Membership.objects.in_group(group)
            if isinstance(group, Team)
            else Membership.objects.reaching(group)
        )
        if not reaching.owners().exclude(user=user).exists():
            orphaned.append(group)
    if not orphaned:
        return
    if heir_id is None:
        names = ", ".join(group.slug for group in orphaned[:5])
        raise Conflict(
            f"{user.email} is the only owner of {names}.",
            code="last_owner",
            field="hand_over_to",
            next_step="Choose a new owner.",
        )
    heirs = User.objects.people().filter(pk=heir_id, is_active=True)
    heir = heirs.exclude(pk=user.pk).first()
    if heir is None:
        raise InvalidInput(
            "The new owner does not exist or is suspended.",
            field="hand_over_to",
            next_step="Choose another user.",
        )
    for group in orphaned:
        _grant_ownership(group, heir)


def _grant_ownership(group: Group, heir: User) -> None:
    team = group if isinstance(group, Team) else None
    project = group if isinstance(group, Project) else None
    Membership.objects.update_or_create(
        user=heir, team=team, project=project, defaults={"role": Role.OWNER}
    )
    audit.record(
        "member.hand_over",
        kind="member",
        target=heir,
        label=heir.email,
        project=project,
        team=team,
        after={"role": Role.OWNER.value},
    )
