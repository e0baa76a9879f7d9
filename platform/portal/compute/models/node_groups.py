"""Node groups: nodes that a provisioner makes when work waits, and releases when they are idle."""

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project
from portal.accounts.principal import Principal
from portal.compute.provisioners import provisioner_label
from portal.compute.resources import Amount
from portal.core.models import IdField, Row

MAX_NODES = 1000
# The label that all nodes of a group have, with its name.
GROUP_LABEL = "node-group"


class NodeGroupQuerySet(models.QuerySet["NodeGroup"]):
    """Queries of node groups."""

    def present(self) -> "NodeGroupQuerySet":
        """Return the groups that were not removed."""
        return self.filter(removed_at__isnull=True)

    def usable_by(self, project: Project) -> "NodeGroupQuerySet":
        """Return the open groups whose nodes take work of a project."""
        usable = Q(is_for_all=True) | Q(projects=project)
        return self.present().filter(usable, is_open=True).distinct()

    def visible_to(self, principal: Principal) -> "NodeGroupQuerySet":
        """Return the open groups that one's projects may use; administrators see all."""
        if principal.user.is_administrator:
            return self.present()
        usable = Q(is_for_all=True) | Q(projects__in=principal.projects().live())
        return self.present().filter(usable, is_open=True).distinct()


class NodeGroup(Row):
    """Nodes of one size, `min_nodes` to `max_nodes` of them, made by `provisioner`.

    `cpu_millis` to `labels` describe one node before the first has joined. A node that has had no
    work for `idle_grace_s` is released. A machine that has not joined within `join_within_s` is
    given up. A group that is not open makes no node. `retry_at` is the end of the back-off after
    `failures` machines in a row that did not come, and `problem` what the provisioner said.
    """

    id = IdField("ngrp")
    name = models.CharField(max_length=32)
    provisioner = models.CharField(max_length=16)
    settings = models.JSONField(default=dict)
    cpu_millis = models.BigIntegerField()
    memory_bytes = models.BigIntegerField()
    gpus = models.PositiveSmallIntegerField(default=0)
    gpu_model = models.CharField(max_length=64, blank=True)
    labels = models.JSONField(default=dict)
    min_nodes = models.PositiveSmallIntegerField(default=0)
    max_nodes = models.PositiveSmallIntegerField()
    max_starting = models.PositiveSmallIntegerField(default=2)
    idle_grace_s = models.PositiveIntegerField(default=300)
    join_within_s = models.PositiveIntegerField(default=600)
    nano_usd_per_hour = models.BigIntegerField()
    is_open = models.BooleanField(default=True)
    is_for_all = models.BooleanField(default=True)
    projects = models.ManyToManyField(Project, through="NodeGroupProject", related_name="+")
    problem = models.CharField(max_length=500, blank=True)
    failures = models.PositiveSmallIntegerField(default=0)
    retry_at = models.DateTimeField(null=True, blank=True)
    looked_at = models.DateTimeField(null=True, blank=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[NodeGroupQuerySet] = NodeGroupQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(removed_at__isnull=True), name="node_group_name_once"
            ),
            models.CheckConstraint(
                condition=Q(
                    cpu_millis__gt=0,
                    memory_bytes__gt=0,
                    max_nodes__gte=1,
                    max_nodes__lte=MAX_NODES,
                    min_nodes__lte=models.F("max_nodes"),
                    max_starting__gte=1,
                    nano_usd_per_hour__gte=0,
                ),
                name="node_group_sensible",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def amount(self) -> Amount:
        """Resources of one node, as the group describes it."""
        return Amount(self.cpu_millis, self.memory_bytes, self.gpus)

    @property
    def provisioner_label(self) -> str:
        """The name of its provisioner that people read."""
        return provisioner_label(self.provisioner)

    @property
    def node_labels(self) -> dict[str, Any]:
        """The labels of its nodes."""
        return {**self.labels, GROUP_LABEL: self.name}

    @property
    def idle_grace(self) -> timedelta:
        """Time without work after which a node is released."""
        return timedelta(seconds=self.idle_grace_s)

    @property
    def join_within(self) -> timedelta:
        """Time within which a machine has to join."""
        return timedelta(seconds=self.join_within_s)

    def is_backing_off(self, timestamp: datetime) -> bool:
        """Return True if no machine is requested yet, after one that did not come."""
        return self.retry_at is not None and self.retry_at > timestamp


class NodeGroupProject(Row):
    """A project that may use a group which is not for all."""

    id = IdField("ngpr")
    group = models.ForeignKey(NodeGroup, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["group", "project"], name="node_group_project_once"),
        ]
