"""The ledger: append-only lines, and sums of them that views read.

The tables hold ids without foreign keys: a ledger outlives its subjects. Empty means "none".
Money is integer nano-USD.
"""

from typing import Any, ClassVar, NoReturn

from django.db import models
from django.db.models import Q

from portal.core import clock

KIND_STORAGE = "storage"
KIND_CAPACITY = "capacity"
# Part of labels that are tags. The parts of groups are the names of kinds.
TAG = "tag"


def _id() -> "models.CharField[str, str]":
    return models.CharField(max_length=64, blank=True, default="")


class LineQuerySet(models.QuerySet["Line"]):
    """Append-only queryset: update and delete raise TypeError. The database refuses both too."""

    def update(self, **_changes: Any) -> NoReturn:
        raise TypeError("lines are only ever added")

    def delete(self) -> NoReturn:
        raise TypeError("lines are only ever added")


class Line(models.Model):
    """Cost of one source from `begin_ms` to `end_ms`, both within one hour.

    A source is a lease or a holding. `nano_usd` is what its project pays. `value_nano_usd` is the
    value of the node's resources, from which idle cost is computed. A correction is negative: it
    takes back what was written before it was known that the source had ended earlier.
    """

    source = models.CharField(max_length=40)
    begin_ms = models.BigIntegerField()
    end_ms = models.BigIntegerField()
    nano_usd = models.BigIntegerField()
    value_nano_usd = models.BigIntegerField(default=0)
    is_correction = models.BooleanField(default=False)
    kind = models.CharField(max_length=32)
    project = _id()
    team = _id()
    person = _id()
    tier = _id()
    node = _id()
    workload = _id()
    made_at = models.DateTimeField(default=clock.now)

    objects: ClassVar[LineQuerySet] = LineQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(condition=Q(end_ms__gte=models.F("begin_ms")), name="line_ahead")
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["begin_ms"], name="line_by_time"),
            models.Index(fields=["project", "begin_ms"], name="line_by_project"),
            models.Index(fields=["source"], name="line_by_source"),
        ]


class MonthTotal(models.Model):
    """Sum of the lines of a month (`2026-11`) with equal values of these columns."""

    KEYS: ClassVar[tuple[str, ...]] = ("month", "project", "team", "person", "tier", "kind")

    month = models.CharField(max_length=7)
    project = _id()
    team = _id()
    person = _id()
    tier = _id()
    kind = models.CharField(max_length=32)
    nano_usd = models.BigIntegerField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["month", "project", "team", "person", "tier", "kind"],
                name="month_total_once",
            )
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "month"], name="month_by_project"),
            models.Index(fields=["team", "month"], name="month_by_team"),
            models.Index(fields=["person", "month"], name="month_by_person"),
        ]


class DayTotal(models.Model):
    """Sum of the lines of a day, in UTC, with equal values of these columns."""

    KEYS: ClassVar[tuple[str, ...]] = ("day", "project", "team", "person", "tier", "kind")

    day = models.DateField()
    project = _id()
    team = _id()
    person = _id()
    tier = _id()
    kind = models.CharField(max_length=32)
    nano_usd = models.BigIntegerField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["day", "project", "team", "person", "tier", "kind"], name="day_total_once"
            )
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["project", "day"], name="day_by_project"),
            models.Index(fields=["team", "day"], name="day_by_team"),
            models.Index(fields=["person", "day"], name="day_by_person"),
        ]


class Split(models.Model):
    """Sum of the lines of a project in a period, for one person, tier or kind (`part`).

    A period is a month (`2026-11`) or a day (`2026-11-21`). Few rows, so that views of everything
    stay fast however much has run.
    """

    KEYS: ClassVar[tuple[str, ...]] = ("period", "project", "part", "key")

    period = models.CharField(max_length=10)
    project = _id()
    part = models.CharField(max_length=8)
    key = _id()
    nano_usd = models.BigIntegerField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["period", "project", "part", "key"], name="split_once")
        ]


class WorkloadTotal(models.Model):
    """Sum of the lines of one workload in a month (`2026-11`) or on a day (`2026-11-21`)."""

    KEYS: ClassVar[tuple[str, ...]] = ("period", "project", "workload", "person", "tier", "kind")

    period = models.CharField(max_length=10)
    project = _id()
    workload = _id()
    person = _id()
    tier = _id()
    kind = models.CharField(max_length=32)
    nano_usd = models.BigIntegerField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["period", "project", "workload", "person", "tier", "kind"],
                name="workload_total_once",
            )
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["period", "-nano_usd"], name="workload_total_dearest"),
            models.Index(fields=["project", "period", "-nano_usd"], name="workload_total_project"),
            models.Index(fields=["workload", "period"], name="workload_total_workload"),
        ]


class LabelTotal(models.Model):
    """Sum of the lines of a project in a period that bear one label.

    A label is the group of a workload (`part` is its kind: an experiment of jobs, an endpoint of
    replicas) or one of its tags (`part` is `tag`, `key` such as `team=vision`). Lines may bear
    several labels or none, so these do not add up to the total spend. A period is as in `Split`.
    """

    KEYS: ClassVar[tuple[str, ...]] = ("period", "project", "part", "key")

    period = models.CharField(max_length=10)
    project = _id()
    part = models.CharField(max_length=32)
    key = models.CharField(max_length=128)
    nano_usd = models.BigIntegerField()

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["period", "project", "part", "key"], name="label_total_once"
            )
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["period", "part", "-nano_usd"], name="label_total_dearest"),
        ]


class LedgerVersionQuerySet(models.QuerySet["LedgerVersion"]):
    """Queryset of the single row."""

    def raise_version(self) -> None:
        """Increment the version, in the transaction that adds lines.

        The row stays locked until that commits, so no other process adds lines meanwhile.
        """
        if not self.filter(pk=1).update(version=models.F("version") + 1):
            # The loser of the race for the first row waits here, and then increments as well.
            self.bulk_create([LedgerVersion(pk=1)], ignore_conflicts=True)
            self.filter(pk=1).update(version=models.F("version") + 1)

    def current(self) -> int:
        """Return the version of the ledger."""
        return self.values_list("version", flat=True).filter(pk=1).first() or 0


class LedgerVersion(models.Model):
    """Version of the ledger, one row. While it is unchanged, so are all sums."""

    id = models.PositiveSmallIntegerField(primary_key=True)
    version = models.BigIntegerField(default=0)

    objects: ClassVar[LedgerVersionQuerySet] = LedgerVersionQuerySet.as_manager()  # type: ignore[assignment]


class NodeDay(models.Model):
    """Capacity of a node on a day and its allocated part, at the rates of resources."""

    KEYS: ClassVar[tuple[str, ...]] = ("day", "node")

    day = models.DateField()
    node = models.CharField(max_length=64)
    capacity_nano_usd = models.BigIntegerField(default=0)
    held_nano_usd = models.BigIntegerField(default=0)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["day", "node"], name="node_day_once")
        ]
