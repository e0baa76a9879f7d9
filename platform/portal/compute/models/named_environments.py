"""Environments that a project names, with numbered versions of their packages."""

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from portal.accounts.models import Project, User
from portal.compute.models.environments import Environment
from portal.core.models import IdField, Row


class NamedEnvironmentQuerySet(models.QuerySet["NamedEnvironment"]):
    """Queries of named environments."""

    def of_project(self, project: Project) -> "NamedEnvironmentQuerySet":
        """Environments of a project, with their people."""
        return self.filter(project=project).select_related("created_by")

    def active(self) -> "NamedEnvironmentQuerySet":
        """Environments that are not archived."""
        return self.filter(archived_at__isnull=True)

    def matching(self, text: str) -> "NamedEnvironmentQuerySet":
        """Return environments whose name contains `text`, or all if it is empty."""
        return self.filter(name__icontains=text) if text else self


class NamedEnvironment(Row):
    """A named environment of a project. `version` is the number of its latest version.

    With `is_default` it is that of jobs and notebook servers that name no packages.
    """

    id = IdField("nenv")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=48)
    description = models.TextField(blank=True, default="")
    version = models.PositiveIntegerField(default=1)
    is_default = models.BooleanField(default=False)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    archived_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[NamedEnvironmentQuerySet] = NamedEnvironmentQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "name"], name="named_environment_once_a_project"
            ),
            models.UniqueConstraint(
                fields=["project"],
                condition=Q(is_default=True),
                name="named_environment_one_default",
            ),
            models.CheckConstraint(
                condition=Q(is_default=False) | Q(archived_at__isnull=True),
                name="named_environment_default_active",
            ),
            models.CheckConstraint(
                condition=Q(version__gte=1), name="named_environment_version_from_one"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class EnvironmentVersionQuerySet(models.QuerySet["EnvironmentVersion"]):
    """Queries of versions of named environments."""

    def current(self) -> "EnvironmentVersionQuerySet":
        """The latest version of each environment."""
        return self.filter(number=F("named__version"))


class EnvironmentVersion(Row):
    """Packages of a named environment. Rows never change.

    `environment` has the packages in canonical form, `packages` is their number. With `is_conda`
    they come from a file of conda.
    """

    id = IdField("envv")
    named = models.ForeignKey(NamedEnvironment, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    environment = models.ForeignKey(Environment, on_delete=models.PROTECT, related_name="+")
    packages = models.PositiveIntegerField()
    is_conda = models.BooleanField(default=False)
    created_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    objects: ClassVar[EnvironmentVersionQuerySet] = EnvironmentVersionQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["named", "number"], name="environment_version_once"),
        ]

    def __str__(self) -> str:
        return self.reference

    @property
    def reference(self) -> str:
        """Name and number, such as `vision@3`."""
        return f"{self.named.name}@{self.number}"
