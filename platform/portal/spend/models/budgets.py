"""Budgets of projects, teams and people, their reservations and the alerts sent."""

from datetime import datetime
from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from portal.accounts.models import Project, Team, User
from portal.accounts.models.tenancy import Membership
from portal.accounts.principal import Principal
from portal.core.models import IdField, Row
from slipway.schemas.spend import BudgetPeriod


class BudgetQuerySet(models.QuerySet["Budget"]):
    """Queryset of budgets."""

    def visible_to(self, principal: Principal) -> "BudgetQuerySet":
        """Return budgets of visible projects and teams and one's own. Administrators see all."""
        if principal.user.is_administrator and not _is_confined(principal):
            return self.all()
        projects = principal.projects().live()
        value = Q(project__in=projects)
        if not _is_confined(principal):
            teams = Membership.objects.filter(user=principal.user, team__isnull=False)
            value |= Q(person=principal.user) | Q(team__in=teams.values("team"))
        return self.filter(value)

    def over(self, *, project: str, team: str, person: str) -> "BudgetQuerySet":
        """Budgets that count the spend of this project, of this team, by this person."""
        value = Q(project=project) | Q(person=person)
        return self.filter(value | Q(team=team) if team else value)

    def reserve(self, budget_id: str, *, nano_usd: int, window: str, timestamp: datetime) -> bool:
        """Reserve an amount. Return False when it does not fit any more.

        One guarded UPDATE, so that a budget is never overcommitted by concurrent requests.
        """
        fits = Q(limit_nano_usd__gte=F("spent_nano_usd") + F("reserved_nano_usd") + nano_usd)
        room = fits & Q(limit_nano_usd__gt=F("spent_nano_usd"))
        free = self.filter(room | Q(override_until__gt=timestamp), pk=budget_id, window=window)
        return bool(free.update(reserved_nano_usd=F("reserved_nano_usd") + nano_usd))


def _is_confined(principal: Principal) -> bool:
    return principal.token is not None and bool(principal.token.project_id)


class Budget(Row):
    """A limit on what one project, team or person spends, in a month or in total.

    `window` is the month (`2026-11`) or `total` that `spent_nano_usd` counts, as of `measured_at`.
    `reserved_nano_usd` is reserved for admitted workloads that have not spent it yet. With `stops`,
    running work is stopped when the limit is reached. Without it the budget only alerts.
    `counts_exempt` stops endpoints too. Until `override_until` nothing is refused or stopped.
    """

    id = IdField("bdg")
    project = models.ForeignKey(
        Project, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    team = models.ForeignKey(
        Team, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    person = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    period = models.CharField(max_length=8, default=BudgetPeriod.MONTH)
    limit_nano_usd = models.BigIntegerField()
    stops = models.BooleanField(default=True)
    counts_exempt = models.BooleanField(default=False)
    made_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    window = models.CharField(max_length=8, blank=True)
    spent_nano_usd = models.BigIntegerField(default=0)
    reserved_nano_usd = models.BigIntegerField(default=0)
    measured_at = models.DateTimeField(null=True, blank=True)
    reached_at = models.DateTimeField(null=True, blank=True)

    override_until = models.DateTimeField(null=True, blank=True)
    override_reason = models.CharField(max_length=300, blank=True)
    override_by = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )

    objects: ClassVar[BudgetQuerySet] = BudgetQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(project__isnull=False, team__isnull=True, person__isnull=True)
                | Q(project__isnull=True, team__isnull=False, person__isnull=True)
                | Q(project__isnull=True, team__isnull=True, person__isnull=False),
                name="budget_of_one",
            ),
            models.CheckConstraint(condition=Q(limit_nano_usd__gt=0), name="budget_positive"),
            models.CheckConstraint(
                condition=Q(reserved_nano_usd__gte=0), name="budget_reserves_what_is"
            ),
            *(
                models.UniqueConstraint(
                    fields=[scope, "period"],
                    condition=Q(**{f"{scope}__isnull": False}),
                    name=f"budget_once_a_{scope}",
                )
                for scope in ("project", "team", "person")
            ),
        ]

    @property
    def scope(self) -> str:
        """`project`, `team` or `person`."""
        return "project" if self.project_id else "team" if self.team_id else "person"

    @property
    def scope_id(self) -> str:
        """Id of the project, team or person it limits."""
        return self.project_id or self.team_id or self.person_id or ""

    @property
    def scope_name(self) -> str:
        """Display name of the project, team or person it limits."""
        if self.project is not None:
            return f"project {self.project.slug}"
        return f"team {self.team.slug}" if self.team is not None else str(self.person)

    @property
    def left_nano_usd(self) -> int:
        """Amount available for reservations, never below zero."""
        return max(0, self.limit_nano_usd - self.spent_nano_usd - self.reserved_nano_usd)

    @property
    def overshoot_nano_usd(self) -> int:
        """Amount spent beyond the limit."""
        return max(0, self.spent_nano_usd - self.limit_nano_usd)

    def is_overridden(self, timestamp: datetime) -> bool:
        """Return True if the limit is overridden at that time."""
        return self.override_until is not None and self.override_until > timestamp

    def is_used_up(self, timestamp: datetime) -> bool:
        """Return True if it refuses new work and stops running work at that time."""
        return (
            self.stops
            and self.spent_nano_usd >= self.limit_nano_usd
            and not self.is_overridden(timestamp)
        )


class Reservation(Row):
    """Amount a budget reserved for one workload, and the part not spent yet.

    `base_nano_usd` is the cost of the workload before it was admitted (again).
    """

    id = IdField("rsv")
    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="reservations")
    workload = models.CharField(max_length=64)
    nano_usd = models.BigIntegerField()
    left_nano_usd = models.BigIntegerField()
    base_nano_usd = models.BigIntegerField(default=0)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["budget", "workload"], name="reservation_once"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["budget"], condition=Q(left_nano_usd__gt=0), name="reservation_open"
            ),
        ]


class BudgetAlert(Row):
    """An alert that was sent, once for each level of each limit in each window."""

    id = IdField("alrt")
    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="alerts")
    window = models.CharField(max_length=8)
    limit_nano_usd = models.BigIntegerField()
    level = models.CharField(max_length=16)
    message = models.CharField(max_length=500)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["budget", "window", "limit_nano_usd", "level"], name="budget_alert_once"
            ),
        ]


class BudgetStop(Row):
    """A workload that was warned and will be stopped for a budget at `stops_at`."""

    id = IdField("bstp")
    budget = models.ForeignKey(Budget, on_delete=models.CASCADE, related_name="+")
    workload = models.CharField(max_length=64)
    epoch = models.PositiveIntegerField()
    stops_at = models.DateTimeField()

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["workload", "epoch"], name="budget_stop_once"),
        ]
