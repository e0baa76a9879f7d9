"""What we know of a version beyond MLflow's row: author, stage, what its files say, figures."""

import math
from typing import ClassVar

from django.db import models

from portal.accounts.models import User
from portal.core.models import IdField, Row
from portal.registry.models.lines import ModelLine
from portal.storage.models import StoredFile


class VersionRecord(Row):
    """A version of a model. `stage` is empty for the first stage of the project.

    `author` is who registered it, where that is known, and what is `given` was said then. What
    follows `read_at` is what its files said then; `fault` says why they said nothing. `format` is a
    `ModelFormat`, and `entry` the file that is the model, where one is. `files` holds [path, bytes,
    SHA-256] of each file; the digests are there since `hashed_at`. `given_batching` and
    `noted_batching` (of its metadata) are each a `BatchingMode` or empty, and `batching_report` is
    the `BatchingReport` of the replica that was ready last.
    """

    id = IdField("mver")
    line = models.ForeignKey(ModelLine, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    stage = models.CharField(max_length=40, blank=True)
    author = models.ForeignKey(
        User, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    given_format = models.CharField(max_length=20, blank=True)
    given_signature = models.JSONField(null=True, blank=True)
    given_batching = models.CharField(max_length=10, blank=True)
    read_at = models.DateTimeField(null=True, blank=True)
    fault = models.CharField(max_length=500, blank=True)
    format = models.CharField(max_length=20, blank=True)
    entry = models.CharField(max_length=1000, blank=True)
    flavors = models.JSONField(default=list)
    signature = models.JSONField(null=True, blank=True)
    example = models.TextField(blank=True)
    noted_batching = models.CharField(max_length=10, blank=True)
    batching_report = models.JSONField(null=True, blank=True)
    batching_reported_at = models.DateTimeField(null=True, blank=True)
    files = models.JSONField(default=list)
    hashed_at = models.DateTimeField(null=True, blank=True)

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(fields=["line", "number"], name="version_record_once_a_number"),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["line", "stage"], name="version_record_by_stage"),
        ]


class GoldenRecord(Row):
    """Predictions that training saw, as a stored file of `GoldenIn`; the newest one counts."""

    id = IdField("gold")
    record = models.ForeignKey(VersionRecord, on_delete=models.CASCADE, related_name="goldens")
    file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")
    rows = models.PositiveIntegerField()
    absolute_tolerance = models.FloatField()
    relative_tolerance = models.FloatField()
    recorded_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")


class Evaluation(Row):
    """A figure of a version on a dataset version such as `digits:3`.

    `workload_id` is the job that reported it itself, with the token only it has; without one,
    somebody else wrote it down, and it does not count for gates. Read `figure`, never `value`.
    """

    id = IdField("eval")
    record = models.ForeignKey(VersionRecord, on_delete=models.CASCADE, related_name="evaluations")
    metric = models.CharField(max_length=250)
    dataset = models.CharField(max_length=100)
    value = models.FloatField(null=True, blank=True)
    not_finite = models.CharField(max_length=4, blank=True)
    run_id = models.CharField(max_length=32, blank=True)
    workload_id = models.CharField(max_length=32, blank=True)
    recorded_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["record", "metric", "dataset"], name="evaluation_by_metric"),
        ]

    @property
    def figure(self) -> float:
        """What was measured, NaN and infinities included."""
        if self.not_finite:
            return float(self.not_finite)
        return math.nan if self.value is None else self.value

    @property
    def is_verified(self) -> bool:
        """Whether a job of the platform reported it itself."""
        return bool(self.workload_id)
