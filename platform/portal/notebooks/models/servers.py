"""Notebook servers and the workloads they have run as."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.compute.models import EnvironmentVersion, Pool, Tier
from portal.core import clock
from portal.core.models import IdField, Row
from portal.notebooks.server_lifecycle import ALIVE
from portal.workloads.lifecycle import ENDS
from portal.workloads.models import Workload
from slipway.schemas.accounts import NetworkRule
from slipway.schemas.notebook_servers import NotebookState

_STATES = [state.value for state in NotebookState]


class ServerQuerySet(models.QuerySet["Server"]):
    """Queries of servers. States change in `portal.notebooks.server_transitions` alone."""

    def of_project(self, project: Project) -> "ServerQuerySet":
        """Servers of one project, with what every answer about them needs."""
        return self.filter(project=project).with_related()

    def with_related(self) -> "ServerQuerySet":
        """The same with what every answer about them needs."""
        servers = self.select_related(
            *("project", "owner", "tier", "pool", "workload__tier", "workload__team"),
            "environment_version__named",
        )
        return servers.select_related(
            "workload__project", "workload__submitted_by"
        ).prefetch_related("runs__workload__leases", "runs__workload__tier__prices", "tier__prices")

    def alive(self) -> "ServerQuerySet":
        """Servers with a workload that has not ended."""
        return self.filter(state__in=[state.value for state in ALIVE])


class Server(Row):
    """Somebody's notebook server in a project. Each start of it is a workload.

    It opens since `opening_since`. `door_trouble` is the Hub's latest reason why it still does.
    `run_attempt` is the placement of its workload that `address` and what follows belong to, and
    `report_sequence` the newest report of that. `active_at` is when something last worked in it.
    `why_alive` says what. `stops_at` is when it will be stopped, known a minute ahead.
    `open_files` are open again when it starts again. At `daily_start` and `daily_stop` (such as
    08:00, in UTC) of `days` it starts and stops. Up to `schedule_seen_at` that has been seen to.
    Without a `pool` it runs on the nodes of the installation. With a `framework` it starts with a
    cluster of it, in the same task.
    """

    id = IdField("nbs")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=48)
    tier = models.ForeignKey(Tier, on_delete=models.PROTECT, related_name="+")
    pool = models.ForeignKey(
        Pool, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    framework = models.CharField(max_length=32, blank=True)
    requirements = models.TextField(blank=True)
    environment_version = models.ForeignKey(
        EnvironmentVersion, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    idle_after_s = models.PositiveIntegerField()
    max_lifetime_s = models.PositiveIntegerField(null=True, blank=True)
    daily_start = models.CharField(max_length=5, blank=True)
    daily_stop = models.CharField(max_length=5, blank=True)
    days = models.JSONField(default=list)
    schedule_seen_at = models.DateTimeField(default=clock.now)
    tags = models.JSONField(default=dict)

    state = models.CharField(max_length=16, default=NotebookState.STOPPED)
    workload = models.ForeignKey(
        Workload, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    reason = models.CharField(max_length=500, blank=True)
    next_step = models.CharField(max_length=300, blank=True)
    started_at = models.DateTimeField(null=True, blank=True)
    opening_since = models.DateTimeField(null=True, blank=True)
    door_trouble = models.CharField(max_length=300, blank=True)

    run_attempt = models.PositiveIntegerField(default=0)
    report_sequence = models.BigIntegerField(default=-1)
    address = models.CharField(max_length=260, blank=True)
    active_at = models.DateTimeField(null=True, blank=True)
    why_alive = models.CharField(max_length=300, blank=True)
    stops_at = models.DateTimeField(null=True, blank=True)
    stops_why = models.CharField(max_length=300, blank=True)
    open_files = models.JSONField(default=list)

    objects: ClassVar[ServerQuerySet] = ServerQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(state__in=_STATES), name="server_known_state"),
            models.UniqueConstraint(fields=["project", "owner", "name"], name="server_once_a_name"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "-id"], name="server_by_project"),
            models.Index(
                fields=["id"],
                condition=Q(state__in=sorted(state.value for state in ALIVE)),
                name="server_alive",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def status(self) -> NotebookState:
        """The state, as a value of the enum."""
        return NotebookState(self.state)

    @property
    def network_rule(self) -> NetworkRule:
        """The network rule it runs under, or would after its next start."""
        if self.workload is None or self.workload.status in ENDS:
            return self.project.network_rule
        return self.workload.network_rule


class ServerRun(Row):
    """One start of a server: the workload it was, whose cost is part of the server's."""

    id = IdField("nbr")
    server = models.ForeignKey(Server, on_delete=models.CASCADE, related_name="runs")
    workload = models.OneToOneField(Workload, on_delete=models.PROTECT, related_name="+")
