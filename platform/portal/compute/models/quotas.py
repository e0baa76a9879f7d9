"""Resource limits of a project or a team, and its weight in the fair share."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, Team
from portal.core.models import IdField, Row


class Quota(Row):
    """Limits on what runs at the same time. None means no limit."""

    id = IdField("quo")
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    cpu_millis = models.BigIntegerField(null=True, blank=True)
    gpus = models.IntegerField(null=True, blank=True)
    running = models.IntegerField(null=True, blank=True)
    weight = models.FloatField(default=1.0)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(team__isnull=True) ^ Q(project__isnull=True),
                name="quota_team_or_project",
            ),
            models.UniqueConstraint(
                fields=["project"], condition=Q(project__isnull=False), name="quota_once_a_project"
            ),
            models.UniqueConstraint(
                fields=["team"], condition=Q(team__isnull=False), name="quota_once_a_team"
            ),
            models.CheckConstraint(condition=Q(weight__gt=0), name="quota_weight_positive"),
        ]
