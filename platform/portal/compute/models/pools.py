"""Pools: where an administrator lets people run work, beside the nodes of the installation."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project, User
from portal.accounts.principal import Principal
from portal.compute.engines import engine_label
from portal.core.models import IdField, Row

# Requests that wait or run in a pool at once, so that priority and fair share still decide.
DEFAULT_REQUESTS = 8
MAX_REQUESTS = 1000
# Percent of the price of a tier.
FULL_PRICE = 100
MAX_PRICE_PERCENT = 1000


class PoolQuerySet(models.QuerySet["Pool"]):
    """Queries of pools."""

    def present(self) -> "PoolQuerySet":
        """Return the pools that were not removed."""
        return self.filter(removed_at__isnull=True)

    def visible_to(self, principal: Principal) -> "PoolQuerySet":
        """Return the open pools that one's projects may use; administrators see all."""
        if principal.user.is_administrator:
            return self.present()
        usable = Q(is_for_all=True) | Q(projects__in=principal.projects().live())
        return self.present().filter(usable, is_open=True).distinct()

    def usable_by(self, project: Project) -> "PoolQuerySet":
        """Return the pools that take new work of a project."""
        usable = Q(is_for_all=True) | Q(projects=project)
        return self.present().filter(usable, is_open=True).distinct()


class Pool(Row):
    """Machines that another scheduler allocates: `engine` says which, `settings` how to reach it.

    Slipway submits at most `most_requests` at once. A pool that is not open takes no new work.
    Work that starts now costs `price_percent` of the price of its tier.
    """

    id = IdField("pool")
    name = models.CharField(max_length=32)
    engine = models.CharField(max_length=16)
    settings = models.JSONField(default=dict)
    most_requests = models.PositiveSmallIntegerField(default=DEFAULT_REQUESTS)
    price_percent = models.PositiveSmallIntegerField(default=FULL_PRICE, db_default=FULL_PRICE)
    is_open = models.BooleanField(default=True)
    is_for_all = models.BooleanField(default=True)
    projects = models.ManyToManyField(Project, through="PoolProject", related_name="+")
    # The engine's answer to the last question, where it could not be reached.
    problem = models.CharField(max_length=500, blank=True)
    removed_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar[PoolQuerySet] = PoolQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(removed_at__isnull=True), name="pool_name_once"
            ),
            models.CheckConstraint(
                condition=Q(most_requests__gte=1, most_requests__lte=MAX_REQUESTS),
                name="pool_sensible_requests",
            ),
            models.CheckConstraint(
                condition=Q(price_percent__gte=0, price_percent__lte=MAX_PRICE_PERCENT),
                name="pool_price_in_range",
            ),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def engine_label(self) -> str:
        """The name of its engine that people read."""
        return engine_label(self.engine)


class PoolAccount(Row):
    """The account that a person has in the system of a pool, with the proof that it is theirs.

    `code` is the name of a job that the person submits there. Its owner, as the engine tells it, is
    `unix_name`, which is empty until then.
    """

    id = IdField("pacc")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="accounts")
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="+")
    code = models.CharField(max_length=64, blank=True)
    asked_at = models.DateTimeField(null=True, blank=True)
    unix_name = models.CharField(max_length=64, blank=True)
    linked_at = models.DateTimeField(null=True, blank=True)
    # The reason for which the last proof was refused.
    problem = models.CharField(max_length=300, blank=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["pool", "user"], name="pool_account_once"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(
                fields=["pool", "asked_at"], condition=~Q(code=""), name="pool_account_asked"
            ),
        ]


class PoolProject(Row):
    """A project that may use a pool which is not for all."""

    id = IdField("plpr")
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["pool", "project"], name="pool_project_once"),
        ]
