"""Our rows of a version beside MLflow's: author, stage, file contents, metrics."""

import math
from typing import ClassVar

from django.db import models

from portal.accounts.models import User
from portal.core.models import IdField, Row
from portal.registry.models.lines import ModelLine
from portal.storage.models import StoredFile


class VersionRecord(Row):
    """A version of a model. `stage` is empty for the first stage of the project.

    `author` is the person who registered it, if known. The `given_` columns were stated at the
    registration. The columns after `read_at` hold what its files contained then. `fault` is the
    reason if they could not be read. `format` is a `ModelFormat`, and `entry` the model file of a
    single-file model. `files` holds [path, bytes, SHA-256] of each file. The digests are set since
    `hashed_at`. `given_batching` and `noted_batching` (from its metadata) are each a `BatchingMode`
    or empty, and `batching_report` is the `BatchingReport` of the replica that was ready last.
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
    """Golden predictions of a version, as a stored file of `GoldenIn`. The newest one counts."""

    id = IdField("gold")
    record = models.ForeignKey(VersionRecord, on_delete=models.CASCADE, related_name="goldens")
    file = models.ForeignKey(StoredFile, on_delete=models.PROTECT, related_name="+")
    rows = models.PositiveIntegerField()
    absolute_tolerance = models.FloatField()
    relative_tolerance = models.FloatField()
    recorded_by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")


class Evaluation(Row):
    """A metric of a version on a dataset version such as `digits:3`.

    `workload_id` is the job that reported it with its own token. Without one, a person recorded it,
    and it does not count for gates. Read `figure`, never `value`.
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
        """The measured value, NaN and infinities included."""
        if self.not_finite:
            return float(self.not_finite)
        return math.nan if self.value is None else self.value

    @property
    def is_verified(self) -> bool:
        """True if a job of the platform reported the value itself."""
        return bool(self.workload_id)
