"""Services for memberships. A team or project always keeps an active owner."""

from django.db import transaction

from portal.accounts import audit
from portal.accounts.models import Membership, Project, Team, User
from portal.accounts.models.tenancy import Group
from portal.accounts.signals import send_accounts_changed
from portal.core.errors import Conflict, Forbidden, NotFound
from slipway.schemas.accounts import Role


def lock_group(group: Group) -> Group:
    """Take the row lock under which memberships of the group change (teams before projects)."""
    if isinstance(group, Team):
        return Team.objects.select_for_update(no_key=True).get(pk=group.pk)
    if group.team_id:
        Team.objects.select_for_update(no_key=True).get(pk=group.team_id)
    return Project.objects.select_for_update(of=("self",), no_key=True).get(pk=group.pk)


def set_role(*, group: Group, user_id: str, role: Role, by: User, by_role: Role) -> Membership:
    """Change a member's role. Only owners grant or revoke the role of owner.

    Raises NotFound when the person is not a direct member, Forbidden when an owner is concerned and
    the caller is none, Conflict when the group would be left without an owner.
    """
    with transaction.atomic():
        group = lock_group(group)
        member = _direct_member(group, user_id)
        old = Role(member.role)
        if old == role:
            return member
        _only_owners_touch_owners(by_role, old, role)
        if old == Role.OWNER:
            _require_another_owner(group, without=member)
        Membership.objects.filter(pk=member.pk).update(role=role)
        member.role = role
        _audit("member.role", group, member, before={"role": old.value}, after={"role": role.value})
        _notify_group_and_user(group, member)
    return member


def remove_member(*, group: Group, user_id: str, by: User, by_role: Role) -> None:
    """Remove a direct member (or leave, when it is oneself). Raises as `set_role` does."""
    with transaction.atomic():
        group = lock_group(group)
        member = _direct_member(group, user_id)
        if member.user_id != by.pk:
            if not by_role.at_least(Role.MAINTAINER):
                raise Forbidden(
                    "Only maintainers and owners remove other members.",
                    code="role_too_low",
                    next_step="Ask an owner.",
                )
            _only_owners_touch_owners(by_role, Role(member.role))
        if member.role == Role.OWNER:
            _require_another_owner(group, without=member)
        member_pk = member.pk
        _audit("member.remove", group, member, before={"role": member.role})
        Membership.objects.filter(pk=member_pk).delete()
        _notify_group_and_user(group, member)


def _direct_member(group: Group, user_id: str) -> Membership:
    memberships = Membership.objects.in_group(group).people().select_related("user")
    member = memberships.filter(user_id=user_id).first()
    if member is None:
        raise NotFound
    return member


def _only_owners_touch_owners(by_role: Role, *roles: Role) -> None:
    if Role.OWNER in roles and by_role != Role.OWNER:
        raise Forbidden(
            "Only owners can add or remove owners.",
            code="role_too_low",
            next_step="Ask an owner.",
        )


def _require_another_owner(group: Group, *, without: Membership) -> None:
    reaching = (
        Membership.objects.in_group(group)
        if isinstance(group, Team)
        else Membership.objects.reaching(group)
    )
    if not reaching.owners().exclude(pk=without.pk).exists():
        raise Conflict(
            f"{without.user} is the last owner of {group.slug}.",
            code="last_owner",
            next_step="Make another member an owner first.",
        )


def add_or_raise(*, group: Group, user: User, role: Role) -> Membership:
    """Make `user` a member. An existing membership keeps the higher of both roles."""
    member, created = Membership.objects.in_group(group).get_or_create(
        user=user,
        **({"team": group} if isinstance(group, Team) else {"project": group}),
        defaults={"role": role},
    )
    old = None if created else member.role
    if not created and role.rank > Role(member.role).rank:
        Membership.objects.filter(pk=member.pk).update(role=role)
        member.role = role
    if created or old != member.role:
        _audit(
            "member.add" if created else "member.role",
            group,
            member,
            before=None if created else {"role": old},
            after={"role": str(member.role)},
        )
        _notify_group_and_user(group, member)
    return member


def _audit(
    verb: str,
    group: Group,
    member: Membership,
    *,
    before: dict[str, str | None] | None = None,
    after: dict[str, str | None] | None = None,
) -> None:
    audit.record(
        verb,
        kind="member",
        target=member.user,
        label=member.user.email,
        project=group if isinstance(group, Project) else None,
        team=group if isinstance(group, Team) else None,
        before=before,
        after=after,
    )


def _notify_group_and_user(group: Group, member: Membership) -> None:
    send_accounts_changed(group.pk, "members")
    send_accounts_changed(member.user_id, "projects")
