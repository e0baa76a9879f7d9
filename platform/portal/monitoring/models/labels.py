"""Labels: the ground truth of predictions."""

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.accounts.models import User
from portal.core.models import IdField, Row
from portal.endpoints.models import Endpoint


class Label(Row):
    """Ground truth of one row of one prediction, as known at that time.

    `reference` is the id of the prediction, or the client's own. In the latter case `prediction_id`
    is empty until the prediction is found. Another value for the same row is another `version`. The
    last one counts.
    """

    id = IdField("lab")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    is_own = models.BooleanField(default=False)
    reference = models.CharField(max_length=200)
    row = models.PositiveIntegerField(default=0)
    version = models.PositiveIntegerField(default=1)
    is_current = models.BooleanField(default=True)
    value = models.JSONField()
    prediction_id = models.CharField(max_length=40, blank=True)
    hour = models.DateTimeField(null=True, blank=True)
    by = models.ForeignKey(User, on_delete=models.PROTECT, related_name="+")

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["endpoint", "is_own", "reference", "row", "version"],
                name="label_once_a_version",
            ),
            models.UniqueConstraint(
                fields=["endpoint", "is_own", "reference", "row"],
                condition=Q(is_current=True),
                name="label_one_counts",
            ),
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["endpoint", "hour"], name="label_by_hour"),
            models.Index(fields=["endpoint", "prediction_id"], name="label_by_prediction"),
        ]


class EmptyLabel(Row):
    """A row of a prediction for which a label without a value was sent, and none with one."""

    id = IdField("eml")
    endpoint = models.ForeignKey(Endpoint, on_delete=models.CASCADE, related_name="+")
    is_own = models.BooleanField(default=False)
    reference = models.CharField(max_length=200)
    row = models.PositiveIntegerField(default=0)
    hour = models.DateTimeField()

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["endpoint", "is_own", "reference", "row"], name="empty_label_once_a_row"
            )
        ]
        indexes: ClassVar[list[models.Index]] = [
            models.Index(fields=["endpoint", "hour"], name="empty_label_by_hour")
        ]
