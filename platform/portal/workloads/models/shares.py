"""Each project's and team's part in the fair share, and whose turn it is to schedule."""

from collections.abc import Sequence
from typing import ClassVar

from django.db import connections, models
from django.db.models import F, Q

from portal.accounts.models import Project, Team
from portal.core.models import IdField, Row

Counts = tuple[int, int, int, int, int]
_COUNTS = ("queued", "running", "cpu_millis", "gpus", "fair_millis")


class ShareQuerySet(models.QuerySet["Share"]):
    """Queries of shares."""

    def of(self, project_id: str, team_id: str | None) -> "ShareQuerySet":
        """The shares a workload of that project counts in: its team's, then the project's.

        That is also the order in which they are locked, everywhere.
        """
        own = Q(project_id=project_id)
        shares = self.filter(own | Q(team_id=team_id) if team_id else own)
        return shares.order_by(F("team_id").asc(nulls_last=True))

    def add(
        self,
        project_id: str,
        team_id: str | None,
        *,
        queued: int = 0,
        running: int = 0,
        cpu_millis: int = 0,
        gpus: int = 0,
        fair_millis: int = 0,
    ) -> None:
        """Count up (or down) what is queued and what runs, for the team and the project."""
        self.add_many([(project_id, team_id, (queued, running, cpu_millis, gpus, fair_millis))])

    def add_many(self, changes: Sequence[tuple[str, str | None, Counts]]) -> None:
        """Count for many projects at once: (project, team, what to add to the five counts).

        Plain SQL, because a pass of the scheduler does this for each project it places from.
        """
        rows = sorted(changes, key=lambda change: (change[1] or "", change[0]))
        of_teams = [(*counts, team_id) for _, team_id, counts in rows if team_id]
        of_projects = [(*counts, project_id) for project_id, _, counts in rows]
        connection = connections[self.db]
        table = connection.ops.quote_name(Share._meta.db_table)  # noqa: SLF001
        added = ", ".join(f"{column} = {column} + %s" for column in _COUNTS)
        with connection.cursor() as cursor:
            for owner, parameters in (("team_id", of_teams), ("project_id", of_projects)):
                if parameters:
                    sql = f"UPDATE {table} SET {added} WHERE {owner} = %s"  # noqa: S608
                    cursor.executemany(sql, parameters)


class Share(Row):
    """Queued and running work of a project or team, and its earlier usage.

    The counts are sums over workloads and open leases, updated in the same transactions.
    `score` is explained in `portal.workloads.fairness`.
    """

    id = IdField("shr")
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    queued = models.IntegerField(default=0)
    running = models.IntegerField(default=0)
    cpu_millis = models.BigIntegerField(default=0)
    gpus = models.IntegerField(default=0)
    fair_millis = models.BigIntegerField(default=0)
    score = models.FloatField(default=0.0)

    objects: ClassVar[ShareQuerySet] = ShareQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(team__isnull=True) ^ Q(project__isnull=True),
                name="share_team_or_project",
            ),
            models.UniqueConstraint(
                fields=["project"], condition=Q(project__isnull=False), name="share_once_a_project"
            ),
            models.UniqueConstraint(
                fields=["team"], condition=Q(team__isnull=False), name="share_once_a_team"
            ),
            models.CheckConstraint(
                condition=Q(
                    queued__gte=0,
                    running__gte=0,
                    cpu_millis__gte=0,
                    gpus__gte=0,
                    fair_millis__gte=0,
                ),
                name="share_counts_not_negative",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["score"], condition=Q(queued__gt=0), name="share_waiting"),
        ]


class SchedulerTurn(models.Model):
    """The one row whose lock a scheduler pass holds, so that passes follow one another."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    passes = models.BigIntegerField(default=0)
    charged_at = models.DateTimeField(null=True, blank=True)
