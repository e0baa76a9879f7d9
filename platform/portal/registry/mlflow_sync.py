"""Syncs moves to MLflow's tables, after they are written to our own history.

MLflow's tables may be in another database, so a crash can separate the two writes. `told_at` of a
move stays null until it is synced: when the model is read next, or by a periodic task. The sync is
idempotent, because it writes the present state of a target and not the change of a single move.
"""

from collections.abc import Iterable
from functools import partial

import structlog
from django.db import DatabaseError, transaction

from portal.accounts.models import Project
from portal.core import clock
from portal.experiments.models import ModelVersion, RegisteredModelAlias
from portal.experiments.models.tables import DATABASE
from portal.registry.catalog import DELETED, ModelFacts, find_model, models_created_at
from portal.registry.models import ModelLine, Move, VersionRecord
from portal.registry.records import line_of
from portal.registry.signals import ModelMoved, model_moved
from slipway.schemas.registry import TargetKind

log = structlog.get_logger(__name__)
# Values that MLflow's own column of stages allows.
_OF_MLFLOW = frozenset({"Staging", "Production", "Archived"})
_LINES_PER_SWEEP = 50


def sync_on_commit(line: ModelLine) -> None:
    """Sync the moves of a model to MLflow once the transaction that writes them has committed."""
    transaction.on_commit(partial(sync_line, line.pk), robust=True)


def find_synced_model(project: Project, name: str) -> ModelFacts:
    """Return a model from MLflow's tables after all of its moves are synced. Raises NotFound."""
    details = find_model(project.pk, name)
    line = line_of(details)
    if line is None or not Move.objects.unsynced().filter(line=line).exists():
        return details
    sync_line(line.pk)
    return find_model(project.pk, name)


def sync_pending() -> int:
    """Sync moves that a crash or an outage of MLflow's database left. Returns the number of models.

    A model that cannot be synced does not delay the others.
    """
    waiting = Move.objects.unsynced().order_by("pk").values_list("line_id", flat=True)
    lines = list(dict.fromkeys(waiting[:1000]))[:_LINES_PER_SWEEP]
    result = 0
    for line_id in lines:
        try:
            sync_line(line_id)
        except DatabaseError as error:
            log.warning("mlflow_not_synced", line=line_id, reason=str(error)[:200])
        else:
            result += 1
    return result


def sync_line(line_id: str) -> None:
    """Write the result of a model's unsynced moves to MLflow's tables.

    The lock on the line keeps a delayed process from writing outdated values.
    """
    with transaction.atomic():
        line = ModelLine.objects.select_for_update(no_key=True).filter(pk=line_id).first()
        if line is None:
            return
        moves = list(Move.objects.unsynced().filter(line=line).order_by("sequence"))
        name = _name_of(line)
        if name is not None and moves:
            with transaction.atomic(using=DATABASE):
                _write({"workspace": line.project_id, "name": name}, line, moves)
        Move.objects.filter(pk__in=[move.pk for move in moves]).update(told_at=clock.now())
        for move in moves:
            model_moved.send_on_commit(
                ModelMoved(line.project_id, name or line.name, move.kind, move.target, move.version)
            )


def _name_of(line: ModelLine) -> str | None:
    """Return the present name of the model, or None if it was deleted or is ambiguous."""
    names = models_created_at(line.project_id, line.born_ms)
    if line.name in names:
        return line.name
    return names[0] if len(names) == 1 else None


def _write(values: dict[str, str], line: ModelLine, moves: Iterable[Move]) -> None:
    aliases = dict.fromkeys(move.target for move in moves if move.kind == TargetKind.ALIAS)
    for alias in aliases:
        last = Move.objects.filter(line=line, kind=TargetKind.ALIAS, target=alias)
        version = last.order_by("-sequence").values_list("version", flat=True)[0]
        _point(values, alias, version)
    staged = [move.version for move in moves if move.kind == TargetKind.STAGE]
    moved = {number for number in staged if number is not None}
    records = VersionRecord.objects.filter(line=line, number__in=moved)
    for number, stage in records.values_list("number", "stage"):
        shown = stage if stage in _OF_MLFLOW else "None"
        versions = ModelVersion.objects.filter(**values, version=number)
        versions.exclude(current_stage=DELETED).update(current_stage=shown)


def _point(values: dict[str, str], alias: str, version: int | None) -> None:
    rows = RegisteredModelAlias.objects.filter(**values, alias=alias)
    if version is None:
        rows.delete()
        return
    kept = ModelVersion.objects.filter(**values, version=version).exclude(current_stage=DELETED)
    if not kept.exists():
        rows.delete()
    elif not rows.update(version=version):
        RegisteredModelAlias(**values, alias=alias, version=version).save(force_insert=True)
