"""Invitations by link."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models.people import User
from portal.accounts.models.tenancy import ROLE_CHOICES, Group, Project, Team
from portal.core import clock
from portal.core.models import IdField, Row


class InvitationQuerySet(models.QuerySet["Invitation"]):
    """Queryset of invitations."""

    def of_group(self, group: Group) -> "InvitationQuerySet":
        """Invitations to exactly this team or project."""
        return self.filter(team=group) if isinstance(group, Team) else self.filter(project=group)

    def open(self) -> "InvitationQuerySet":
        """Invitations that can still be accepted."""
        return self.filter(
            accepted_at__isnull=True, revoked_at__isnull=True, expires_at__gt=clock.now()
        ).exclude(project__archived_at__isnull=False)


class Invitation(Row):
    """A link for one e-mail address that makes its bearer a member. It is stored as a hash."""

    id = IdField("inv")
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.CASCADE, related_name="invitations"
    )
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="invitations"
    )
    email = models.EmailField(max_length=254)
    role = models.CharField(max_length=16, choices=ROLE_CHOICES)
    token_hash = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    revoked_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[InvitationQuerySet] = InvitationQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(team__isnull=True) ^ Q(project__isnull=True),
                name="invitation_team_or_project",
            ),
        ]

    @property
    def group(self) -> Group:
        """The team or project it invites to."""
        group = self.project or self.team
        assert group is not None  # noqa: S101  (a check constraint ensures it)
        return group

    @property
    def state(self) -> str:
        """`open`, `accepted`, `revoked` or `expired`."""
        if self.accepted_at:
            return "accepted"
        if self.revoked_at:
            return "revoked"
        return "open" if self.expires_at > clock.now() else "expired"
