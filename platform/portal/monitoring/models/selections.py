"""Selections of predictions for datasets, and erasures of predictions."""

from typing import ClassVar

from django.db import models

from portal.accounts.models import User
from portal.core.models import IdField, Row
from portal.datasets.models import Dataset, Version
from portal.endpoints.models import Endpoint


class Selection(Row):
    """Request to export predictions with labels to a version of a dataset.

    `filters` is the requested filter, `revisions` the ids of the revisions that gave the
    predictions. It is pending while `done_at` is empty. `reason` explains why no version was
    created.
    """

    id = IdField("sel")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    dataset = models.ForeignKey(Dataset, on_delete=models.PROTECT, related_name="+")
    version = models.ForeignKey(
        Version, null=True, blank=True, on_delete=models.SET_NULL, related_name="+"
    )
    filters = models.JSONField(default=dict)
    only_labelled = models.BooleanField(default=True)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    rows = models.BigIntegerField(default=0)
    revisions = models.JSONField(default=list)
    reason = models.CharField(max_length=500, blank=True)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta(Row.Meta):
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["done_at"], name="selection_waits"),
        ]


class Erasure(Row):
    """Request to delete all predictions of a key: a prediction's id, or the client's own.

    `prediction_ids` are the deleted ones, which exports of earlier selections leave out.
    """

    id = IdField("gone")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    is_own = models.BooleanField(default=False)
    reference = models.CharField(max_length=200)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")
    rows = models.BigIntegerField(default=0)
    prediction_ids = models.JSONField(default=list)
    done_at = models.DateTimeField(null=True, blank=True)

    class Meta(Row.Meta):
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["done_at"], name="erasure_waits"),
        ]
