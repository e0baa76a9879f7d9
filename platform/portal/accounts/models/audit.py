"""The append-only audit log."""

from datetime import datetime
from typing import Any, ClassVar, NoReturn

from django.db import models
from django.db.models import Q

from portal.accounts.models.people import User
from portal.accounts.models.tenancy import Membership, Project, Team
from portal.core import clock
from portal.core.models import IdField
from slipway.schemas.accounts import Role


class AuditQuerySet(models.QuerySet["AuditEvent"]):
    """Queryset of audit events. It has no update and no delete, which the database refuses too."""

    def visible_to(self, user: User) -> "AuditQuerySet":
        """Return the events that `user` may see.

        Administrators see all. Others see their own, and those of what they maintain.
        """
        if user.is_administrator:
            return self
        maintained = Membership.objects.filter(
            user=user, role__in=[Role.MAINTAINER.value, Role.OWNER.value]
        )
        return self.filter(
            Q(actor_id=user.pk)
            | Q(project_id__in=maintained.filter(project__isnull=False).values("project"))
            | Q(
                project_id__in=Project.objects.filter(team__in=maintained.values("team")).values(
                    "pk"
                )
            )
            | Q(team_id__in=maintained.filter(team__isnull=False).values("team"))
        )

    def matching(
        self,
        *,
        actor: str = "",
        verb: str = "",
        target_kind: str = "",
        target_id: str = "",
        project: str = "",
        team: str = "",
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> "AuditQuerySet":
        """Filter the events by the arguments given.

        `actor` is an e-mail address or an id. `verb` may end in `.` to match every verb of a noun.
        `project` and `team` are slugs.
        """
        events = self
        if actor:
            events = events.filter(Q(actor=actor) | Q(actor_id=actor))
        if verb:
            events = events.filter(**{"verb__startswith" if verb.endswith(".") else "verb": verb})
        if target_kind:
            events = events.filter(target_kind=target_kind)
        if target_id:
            events = events.filter(target_id=target_id)
        if project:
            events = events.filter(project_id__in=Project.objects.filter(slug=project).values("pk"))
        if team:
            events = events.filter(team_id__in=Team.objects.filter(slug=team).values("pk"))
        if since:
            events = events.filter(at__gte=since)
        if until:
            events = events.filter(at__lt=until)
        return events

    def update(self, **_changes: Any) -> NoReturn:
        raise TypeError("the audit log is append-only")

    def delete(self) -> NoReturn:
        raise TypeError("the audit log is append-only")


class AuditEvent(models.Model):
    """One change. Ids are stored as text, not as foreign keys: the log outlives its targets."""

    id = IdField("aud")
    at = models.DateTimeField(default=clock.now, editable=False)
    actor_id = models.CharField(max_length=32, blank=True)
    actor = models.CharField(max_length=254)
    token_id = models.CharField(max_length=32, blank=True)
    ip = models.GenericIPAddressField(null=True, blank=True)
    request_id = models.CharField(max_length=64, blank=True)
    verb = models.CharField(max_length=64)
    project_id = models.CharField(max_length=32, blank=True)
    project_slug = models.CharField(max_length=48, blank=True)
    team_id = models.CharField(max_length=32, blank=True)
    team_slug = models.CharField(max_length=48, blank=True)
    target_kind = models.CharField(max_length=32)
    target_id = models.CharField(max_length=64)
    target_label = models.CharField(max_length=254)
    before = models.JSONField(null=True, blank=True)
    after = models.JSONField(null=True, blank=True)

    objects: ClassVar[AuditQuerySet] = AuditQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering: ClassVar[list[str]] = ["-pk"]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project_id", "-id"], name="audit_by_project"),
            models.Index(fields=["team_id", "-id"], name="audit_by_team"),
            models.Index(fields=["actor_id", "-id"], name="audit_by_actor"),
            models.Index(fields=["verb", "-id"], name="audit_by_verb"),
            models.Index(fields=["target_id", "-id"], name="audit_by_target"),
        ]

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert the event. Raise TypeError when it is stored already."""
        if not self._state.adding:
            raise TypeError("the audit log is append-only")
        super().save(*args, **kwargs)

    def delete(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise TypeError("the audit log is append-only")
