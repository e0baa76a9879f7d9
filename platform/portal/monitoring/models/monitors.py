"""Monitoring state of an endpoint, and the baselines of its models."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.core import clock
from portal.core.models import IdField, Row
from portal.endpoints.models import Endpoint
from portal.registry.models import VersionRecord


class Monitor(Row):
    """Monitoring state of one endpoint, created with its first prediction or first change.

    `settings` is a `schemas.monitoring.MonitorSettings`. `columns` is the type of each column of
    its captured predictions. `unreadable` counts predictions whose bodies have no rows that can be
    parsed, `shortened` those with rows or columns above the limits. `basis` holds the task and the
    type of labels (`statistics.tasks.Basis`), and statistics of the outputs.
    """

    id = IdField("mon")
    endpoint = models.OneToOneField(Endpoint, on_delete=models.CASCADE, related_name="+")
    settings = models.JSONField(default=dict)
    columns = models.JSONField(default=dict)
    unreadable = models.BigIntegerField(default=0)
    shortened = models.BigIntegerField(default=0)
    basis = models.JSONField(default=dict)
    processed_at = models.DateTimeField(null=True, blank=True)
    fault = models.CharField(max_length=500, blank=True)


class BaselineRecord(Row):
    """A baseline of a registered version, or of a revision's own first predictions.

    `source` is the kind of data it was created from, `words` describes that in a sentence.
    `features` holds `statistics.baselines.Baseline`s. It is empty while no data was found. The next
    attempt is at `next_look_at`.
    """

    id = IdField("base")
    record = models.OneToOneField(
        VersionRecord, null=True, blank=True, on_delete=models.CASCADE, related_name="+"
    )
    revision_id = models.CharField(max_length=32, blank=True)
    source = models.CharField(max_length=24, blank=True)
    words = models.CharField(max_length=500, blank=True)
    rows = models.BigIntegerField(default=0)
    features = models.JSONField(default=list)
    calibration = models.JSONField(null=True, blank=True)
    looks = models.PositiveSmallIntegerField(default=0)
    next_look_at = models.DateTimeField(default=clock.now)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["revision_id"],
                condition=~Q(revision_id=""),
                name="baseline_once_a_revision",
            ),
        ]
