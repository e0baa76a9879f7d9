"""Services for invitations: a link bound to one e-mail address."""

import secrets
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.urls import reverse

from portal.accounts import audit
from portal.accounts.mail import queue_mail
from portal.accounts.models import Invitation, Membership, Project, Team, User
from portal.accounts.models.service_accounts import is_service_address
from portal.accounts.models.tenancy import Group
from portal.accounts.services.members import add_or_raise, lock_group
from portal.accounts.signals import send_accounts_changed
from portal.accounts.tokens import hash_of
from portal.core import clock
from portal.core.errors import Conflict, Forbidden, InvalidInput, NotFound
from slipway.schemas.accounts import Role


@dataclass(frozen=True)
class NewInvitation:
    """An invitation and its link, which is not stored."""

    invitation: Invitation
    link: str


def invite(
    *, group: Group, by: User, by_role: Role, email: str, role: Role, expires_in_days: int = 7
) -> NewInvitation:
    """Invite one address, replacing a link that was still open for it.

    Raises InvalidInput for a bad address, Conflict when the person is a member already, Forbidden
    when the role given is above one's own.
    """
    email = _clean_email(email)
    if not by_role.at_least(role):
        raise Forbidden(
            f"You are {by_role.value} and cannot invite people as {role.value}.",
            code="role_too_low",
            field="role",
            next_step="Choose a role up to your own.",
        )
    secret = secrets.token_urlsafe(30)
    link = settings.SLIPWAY_URL + reverse("invitation", args=[secret])
    with transaction.atomic():
        group = lock_group(group)
        if Membership.objects.in_group(group).filter(user__email=email).exists():
            raise Conflict(
                f"{email} is already a member.",
                code="already_member",
                field="email",
                next_step="Change the member's role instead.",
            )
        Invitation.objects.of_group(group).open().filter(email=email).update(revoked_at=clock.now())
        invitation = Invitation.objects.create(
            team=group if isinstance(group, Team) else None,
            project=group if isinstance(group, Project) else None,
            email=email,
            role=role,
            token_hash=hash_of(secret),
            invited_by=by,
            expires_at=clock.now() + timedelta(days=expires_in_days),
        )
        _audit("invitation.create", invitation, after={"role": role.value})
        queue_mail(
            to=email,
            subject=f"{by.display_name} invites you to {group.name}",
            body=(
                f"{by.display_name} ({by.email}) invites you to {group.name} on Slipway "
                f"as {role.value}.\n\nAccept within {expires_in_days} days:\n{link}\n"
            ),
        )
        send_accounts_changed(group.pk, "invitations")
    return NewInvitation(invitation, link)


def find_open(secret: str) -> Invitation:
    """Return the invitation of a link. Raise NotFound when it cannot be accepted any more."""
    invitations = Invitation.objects.open().select_related("project__team", "team", "invited_by")
    invitation = invitations.filter(token_hash=hash_of(secret)).first()
    if invitation is None:
        raise NotFound(
            "This invitation does not exist, was withdrawn, was already used or has expired.",
            next_step="Ask the person who invited you for a new one.",
        )
    return invitation


def accept(*, secret: str, by: User) -> Invitation:
    """Become a member. The link works once, and only for the address it was issued to."""
    with transaction.atomic():
        invitation = find_open(secret)
        if by.email != invitation.email:
            raise Forbidden(
                "This invitation is for another e-mail address.",
                code="other_address",
                next_step="Sign in with the invited address, or ask for a new invitation.",
            )
        return _accept(invitation, by)


def _accept(invitation: Invitation, by: User) -> Invitation:
    group = lock_group(invitation.group)
    won = (
        Invitation.objects.open()
        .filter(pk=invitation.pk)
        .update(accepted_at=clock.now(), accepted_by=by)
    )
    if not won:
        raise NotFound(
            "This invitation was just used.",
            next_step="If it was not you, ask the person who invited you for a new one.",
        )
    add_or_raise(group=group, user=by, role=Role(invitation.role))
    _audit("invitation.accept", invitation, after={"role": invitation.role})
    send_accounts_changed(group.pk, "invitations")
    return invitation


def accept_without_link(*, invitation_id: str, by: User) -> Invitation:
    """Accept without the link an open invitation for one's own address.

    E-mail addresses cannot be changed, so a signed-in session proves as much as the link does.
    Raises NotFound for an invitation of anybody else.
    """
    invitations = Invitation.objects.open().select_related("project__team", "team", "invited_by")
    with transaction.atomic():
        invitation = invitations.filter(pk=invitation_id, email=by.email).first()
        if invitation is None:
            raise NotFound
        return _accept(invitation, by)


def revoke(*, group: Group, invitation_id: str) -> None:
    """Revoke an open invitation of the group. Raise NotFound when there is none."""
    with transaction.atomic():
        invitations = Invitation.objects.of_group(group).open().filter(pk=invitation_id)
        invitation = invitations.first()
        if invitation is None or not invitations.update(revoked_at=clock.now()):
            raise NotFound
        _audit("invitation.revoke", invitation, before={"role": invitation.role})
        send_accounts_changed(group.pk, "invitations")


def _clean_email(email: str) -> str:
    email = email.strip().lower()
    try:
        validate_email(email)
    except ValidationError as error:
        raise InvalidInput(
            "This is not an e-mail address.",
            code="invalid_email",
            field="email",
            next_step="Enter an address such as ada@example.org.",
        ) from error
    if is_service_address(email):
        raise InvalidInput(
            "A service account cannot be invited: it belongs to one project.",
            code="service_account",
            field="email",
            next_step="Create a service account in the project where you need one.",
        )
    return email


def _audit(verb: str, invitation: Invitation, **states: dict[str, str] | None) -> None:
    audit.record(
        verb,
        kind="invitation",
        target=invitation,
        label=invitation.email,
        project=invitation.project,
        team=invitation.team,
        **states,
    )
