"""Hours and windows of captured predictions."""

from typing import ClassVar

from django.db import models

from portal.core.models import IdField, Row
from portal.endpoints.models import Endpoint


class CapturedHour(Row):
    """An hour of captured predictions of an endpoint on the disk.

    `seen` are the raw files that were ingested, `parts` the flat files with their rows. `is_stale`
    means that its summaries are older than its rows or labels.
    """

    id = IdField("hour")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    hour = models.DateTimeField()
    seen = models.JSONField(default=list)
    parts = models.JSONField(default=list)
    is_stale = models.BooleanField(default=True)
    is_closed = models.BooleanField(default=False)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["endpoint", "hour"], name="hour_once_an_endpoint"),
        ]


class HourSummary(models.Model):
    """Summary of an hour of one revision. `counts` are those of the baseline's bins, by feature.

    `quality` holds additive sums (`statistics.quality`), `estimate` the accuracy estimated by CBPE.
    """

    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    hour = models.DateTimeField()
    revision_id = models.CharField(max_length=32)
    rows = models.BigIntegerField(default=0)
    predictions = models.BigIntegerField(default=0)
    labelled = models.BigIntegerField(default=0)
    latency_ms = models.JSONField(default=dict)
    counts = models.JSONField(default=dict)
    quality = models.JSONField(null=True, blank=True)
    estimate = models.JSONField(null=True, blank=True)

    class Meta:
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["endpoint", "hour", "revision_id"], name="summary_once_an_hour"
            ),
        ]


class DriftWindow(Row):
    """Predictions of a revision after `starts_at` up to `ends_at`, compared with the baseline.

    `failed` predictions (5xx) are not among its `rows`. `features` holds a
    `statistics.drift_verdicts.Difference` each. `different` are those that differ here, `drifted`
    those that differed in the window before as well.
    """

    id = IdField("win")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    revision_id = models.CharField(max_length=32)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    rows = models.BigIntegerField()
    failed = models.BigIntegerField(default=0)
    features = models.JSONField(default=list)
    different = models.JSONField(default=list)
    drifted = models.JSONField(default=list)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["endpoint", "revision_id", "ends_at"], name="window_once_an_end"
            ),
        ]
