"""The rules of a project, and our row of each of its registered models."""

from typing import ClassVar

from django.db import models
from django.db.models import F

from portal.accounts.models import Project
from portal.core.models import IdField, Row
from slipway.schemas.registry import DEFAULT_STAGES


def default_stages() -> list[str]:
    """Return the default stages of a project."""
    return list(DEFAULT_STAGES)


class ProjectRules(Row):
    """The stages of a project in order, and its gates as a list of `TargetGates`.

    `revision` counts changes. It guards a change against concurrent ones.
    """

    id = IdField("rules")
    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="+")
    stages = models.JSONField(default=default_stages)
    gates = models.JSONField(default=list)
    revision = models.PositiveIntegerField(default=0)


class ModelLineQuerySet(models.QuerySet["ModelLine"]):
    """Queries of lines."""

    def advance(self, pk: str, sequence: int) -> bool:
        """Take the next place in the history of a model. Returns False if the race was lost.

        The row stays locked until the transaction ends, so the rest of it runs without concurrency.
        """
        row = self.filter(pk=pk, sequence=sequence)
        return bool(row.update(sequence=F("sequence") + 1))


class ModelLine(Row):
    """Our row of a registered model, with the values that MLflow's table lacks.

    `born_ms` is the time when MLflow created it. A model that is deleted and created again under
    its name is another one: no approval of the first is valid for the second. `sequence` counts its
    moves.
    """

    id = IdField("model")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    name = models.CharField(max_length=256)
    born_ms = models.BigIntegerField()
    sequence = models.PositiveIntegerField(default=0)
    card = models.TextField(blank=True)

    objects: ClassVar[ModelLineQuerySet] = ModelLineQuerySet.as_manager()  # type: ignore[assignment]

    class Meta(Row.Meta):
        constraints: ClassVar[list[models.BaseConstraint]] = [
            models.UniqueConstraint(
                fields=["project", "name", "born_ms"], name="model_line_once_a_birth"
            ),
        ]

    def __str__(self) -> str:
        return self.name
