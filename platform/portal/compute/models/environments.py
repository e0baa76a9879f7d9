"""Environments of user code: their packages, projects and the state of their builds per node."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.compute.lifecycle import BuildState
from portal.compute.models.nodes import Node
from portal.core.models import IdField, Row


class Environment(Row):
    """Python packages, content-addressed: the same requirements are the same environment.

    `locked` holds the exact versions resolved by the first finished build. Later builds use them.
    With `dockerfile`, its text, it is an image instead, which brings its own Python. `context` is
    the folder of the code that it is built from, and `copies` are the files of that folder that it
    copies, None for all of the code. With `conda`, the canonical form of its packages, it is built
    from channels of conda, and `requirements` are what pip installs beside them.
    """

    id = IdField("env")
    digest = models.CharField(max_length=64, unique=True)
    requirements = models.TextField(blank=True)
    python = models.CharField(max_length=8)
    locked = models.TextField(blank=True)
    dockerfile = models.TextField(blank=True, default="")
    context = models.CharField(max_length=500, blank=True, default="")
    copies = models.JSONField(null=True, blank=True, default=None)
    conda = models.TextField(blank=True, default="")


class ProjectEnvironment(Row):
    """Use of an environment by a project. A project does not see the uses of other projects."""

    id = IdField("penv")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="uses")
    added_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "environment"], name="environment_once_a_project"
            ),
        ]


class BuildRequest(Row):
    """Request to a node to build an environment for a project before a task needs it.

    The report of the finished build deletes it. An image of a Dockerfile is built from the code
    `snapshot`, with the limits of a job, and pushed to the registry of the installation.
    """

    id = IdField("breq")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="+")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    requested_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    snapshot = models.CharField(max_length=100, blank=True, default="")
    cpu_millis = models.BigIntegerField(default=0)
    memory_bytes = models.BigIntegerField(default=0)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["environment", "node", "project"],
                name="build_request_once_a_node_and_project",
            ),
        ]


class EnvironmentBuild(Row):
    """State of a project's environment on one node, as its agent reports.

    `number` counts the builds. Their output may come from code of the project. `image` is the name
    by digest of an image that was pushed, and `image_python` its interpreter.
    """

    id = IdField("bld")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")
    environment = models.ForeignKey(Environment, on_delete=models.CASCADE, related_name="builds")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="+")
    number = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=16, default=BuildState.BUILDING)
    size_bytes = models.BigIntegerField(null=True, blank=True)
    changed_at = models.DateTimeField()
    image = models.CharField(max_length=500, blank=True, default="")
    image_python = models.CharField(max_length=200, blank=True, default="")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["environment", "node", "project"],
                name="build_once_an_environment_node_and_project",
            ),
            models.CheckConstraint(
                condition=Q(state__in=[state.value for state in BuildState]),
                name="build_known_state",
            ),
        ]
