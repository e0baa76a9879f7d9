"""Predictions that became data again, and predictions that have to go."""

from typing import ClassVar

from django.db import models

from portal.accounts.models import User
from portal.core.models import IdField, Row
from portal.datasets.models import Dataset, Version
from portal.endpoints.models import Endpoint


class Selection(Row):
    """Predictions with labels on their way into a version of a dataset.

    `filters` is what was asked for, `revisions` the ids of those that gave the predictions. It
    waits while `done_at` is empty; `reason` says why nothing came of it.
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
    """A request that all predictions of a key be gone: a prediction's id, or the client's own.

    `prediction_ids` are those it has removed, which exports of earlier selections leave out.
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
