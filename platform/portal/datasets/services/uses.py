"""Lineage: which jobs and runs read a version, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from portal.accounts.models import User
from portal.core.pagination import Page, paginate
from portal.datasets.models import DatasetUse, Version
from portal.datasets.ports import DerivedModel, models
from portal.workloads.models import Workload

MOST_SHOWN = 200


@dataclass(frozen=True)
class Use:
    """A use and the models that came of it."""

    row: DatasetUse
    models: list[DerivedModel]


def record_use(
    *,
    version: Version,
    by: User,
    workload: Workload | None = None,
    run_id: str = "",
    declared: bool = False,
) -> DatasetUse:
    """Record that a job or run reads a version. Idempotent.

    `declared` says that the job was submitted with it.
    """
    same = DatasetUse.objects.filter(version=version, workload=workload, run_id=run_id)
    dataset_use = same.first()
    if dataset_use is None:
        try:
            with transaction.atomic():
                dataset_use = DatasetUse.objects.create(
                    version=version, workload=workload, run_id=run_id, declared=declared, by=by
                )
        except IntegrityError:  # another process recorded it concurrently
            dataset_use = same.get()
    return dataset_use


def uses_of(version: Version) -> list[Use]:
    """Return the newest 200 readers of a version, with the models that came of it."""
    page = page_of_uses(version, cursor=None, limit=MOST_SHOWN)
    return with_models(page.items, version.dataset.project_id)


def page_of_uses(version: Version, *, cursor: str | None, limit: int) -> Page[DatasetUse]:
    """Return a page of the readers of a version, newest first."""
    return paginate(version.uses.select_related("workload", "by"), cursor=cursor, limit=limit)


def jobs_reading(version: Version) -> int:
    """Count the jobs that read a version."""
    return version.uses.exclude(workload=None).values("workload").distinct().count()


def read_by(*, workload: Workload | None = None, run_id: str = "") -> QuerySet[Version]:
    """Return the versions a job, or an MLflow run, reads."""
    uses = DatasetUse.objects.filter(workload=workload) if workload else DatasetUse.objects.all()
    if run_id or workload is None:
        uses = uses.filter(run_id=run_id)
    versions = Version.objects.complete().filter(pk__in=uses.values("version"))
    return versions.order_by("dataset__name", "number")


def with_models(rows: Sequence[DatasetUse], project_id: str) -> list[Use]:
    """Add the models that came of each reader."""
    made = models().derived_from(
        project_id=project_id,
        run_ids=sorted({row.run_id for row in rows if row.run_id}),
        workload_ids=sorted({row.workload_id for row in rows if row.workload_id}),
    )
    return [Use(row, [item for item in made if _is_derived_from(item, row)]) for row in rows]


def _is_derived_from(model: DerivedModel, row: DatasetUse) -> bool:
    if model.run_id and row.run_id:
        return model.run_id == row.run_id
    return bool(model.workload_id) and model.workload_id == row.workload_id
