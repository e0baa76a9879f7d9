"""The rules of a project, and what we keep of each of its registered models."""

from typing import ClassVar

from django.db import models
from django.db.models import F

from portal.accounts.models import Project
from portal.core.models import IdField, Row
from slipway.schemas.registry import DEFAULT_STAGES


def default_stages() -> list[str]:
    """Return the stages of a project that named none."""
    return list(DEFAULT_STAGES)


class ProjectRules(Row):
    """The stages of a project in order, and its gates as a list of `TargetGates`.

    `revision` counts changes; a change is guarded by the one it was made from.
    """

    id = IdField("rules")
    project = models.OneToOneField(Project, on_delete=models.CASCADE, related_name="+")
    stages = models.JSONField(default=default_stages)
    gates = models.JSONField(default=list)
    revision = models.PositiveIntegerField(default=0)


class ModelLineQuerySet(models.QuerySet["ModelLine"]):
    """Verbs on lines."""

    def advance(self, pk: str, sequence: int) -> bool:
        """Take the next place in the history of a model; False when somebody else was first.

        The row stays locked until the transaction ends, so what follows in it happens alone.
        """
        row = self.filter(pk=pk, sequence=sequence)
        return bool(row.update(sequence=F("sequence") + 1))


class ModelLine(Row):
    """A registered model, as far as MLflow's table of them does not tell.

    `born_ms` is when MLflow made it. A model deleted and made again under its name is another one:
    nothing that was approved for the first holds for the second. `sequence` counts its moves.
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
