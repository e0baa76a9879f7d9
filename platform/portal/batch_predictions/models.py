"""Batch predictions, one for each job that makes one."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import Project
from portal.core import clock
from portal.datasets.models import Dataset, Version
from portal.training.models import Job
from slipway.schemas.batch_predictions import ON_ERROR


class BatchPredictionQuerySet(models.QuerySet["BatchPrediction"]):
    """Queries of batch predictions."""

    def of_project(self, project: Project) -> "BatchPredictionQuerySet":
        """Batch predictions of one project, with what every answer about them needs."""
        predictions = self.filter(job__workload__project=project).select_related(
            *("job__workload__project", "job__workload__tier", "job__workload__pool"),
            *("job__workload__submitted_by", "job__workload__team"),
            *("data__dataset", "output__dataset", "target"),
        )
        return predictions.defer("served").prefetch_related(
            "job__workload__leases", "job__workload__tier__prices", "job__checkpoints"
        )

    def matching(self, text: str) -> "BatchPredictionQuerySet":
        """Filter by the names of the model, the data and the output. Empty returns all."""
        if not text:
            return self
        names = Q(model__icontains=text) | Q(data__dataset__name__icontains=text)
        return self.filter(names | Q(target__name__icontains=text))


class BatchPrediction(models.Model):
    """A table of `data`, predicted by a job with a version of a model.

    `served` is the model as a replica would get it (`portal.endpoints.ports.ServedModel`).
    `columns` go to the model, `keep` to the output. `target` is the dataset that gets the result,
    and `output` the version that it was reported as, once a job. The counts are null until then.
    """

    job = models.OneToOneField(Job, primary_key=True, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(default=clock.now, editable=False)
    model = models.CharField(max_length=100)
    number = models.PositiveIntegerField()
    served = models.JSONField()
    data = models.ForeignKey(Version, on_delete=models.PROTECT, related_name="+")
    table = models.CharField(max_length=1000)
    columns = models.JSONField()
    keep = models.JSONField()
    on_error = models.CharField(max_length=4)
    target = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="+")
    output = models.ForeignKey(
        Version, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    rows = models.BigIntegerField(null=True, blank=True)
    failed_rows = models.BigIntegerField(null=True, blank=True)
    seconds = models.FloatField(null=True, blank=True)
    rows_per_call = models.PositiveIntegerField(null=True, blank=True)
    batching = models.CharField(max_length=1000, blank=True)
    first_failure = models.CharField(max_length=2000, blank=True)

    objects: ClassVar[BatchPredictionQuerySet] = BatchPredictionQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering: ClassVar[list[str]] = ["-pk"]
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.CheckConstraint(
                condition=Q(on_error__in=ON_ERROR), name="batch_prediction_known_on_error"
            ),
            models.CheckConstraint(
                condition=Q(output__isnull=True) | Q(rows__isnull=False),
                name="batch_prediction_counted",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["model", "number"], name="batch_prediction_by_model"),
        ]
