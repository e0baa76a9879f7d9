"""Serializers of datasets."""

from collections.abc import Sequence

from portal.api.v1.serializers import user_out
from portal.datasets.models import Dataset, DataTable, Entry, Version
from portal.datasets.services.uses import Use
from slipway.schemas.datasets import (
    DataFileOut,
    DatasetOut,
    DatasetVersionOut,
    DataTableOut,
    DerivedModelOut,
    PreviewOut,
    TableProblem,
    UseOut,
    VersionState,
)
from slipway.schemas.statistics import TableStatistics
from slipway.schemas.tables import ReadSettings, TableSchema


def dataset_out(dataset: Dataset) -> DatasetOut:
    """Serialize a dataset read `with_totals`."""
    return DatasetOut(
        id=dataset.pk,
        project=dataset.project.slug,
        name=dataset.name,
        description=dataset.description,
        latest=dataset.latest,  # type: ignore[attr-defined]
        versions=dataset.ready_count,  # type: ignore[attr-defined]
        size_bytes=dataset.ready_bytes or 0,  # type: ignore[attr-defined]
        created_by=user_out(dataset.created_by),
        created_at=dataset.created_at,
        deleted_at=dataset.deleted_at,
    )


def version_out(version: Version) -> DatasetVersionOut:
    """Serialize a version."""
    return DatasetVersionOut(
        id=version.pk,
        dataset=version.dataset.name,
        number=version.number,
        reference=version.reference if version.number else None,
        state=VersionState(version.state),
        note=version.note,
        digest=version.digest or None,
        files=version.files,
        size_bytes=version.size_bytes,
        rows=version.rows,
        reason=version.reason,
        same_as=version.same_as,
        settings=ReadSettings.model_validate(version.settings),
        bad_rows=version.bad_rows,
        problems=[TableProblem.model_validate(problem) for problem in version.problems],
        tables_left_out=version.tables_left_out,
        created_by=user_out(version.created_by),
        created_at=version.created_at,
        ready_at=version.ready_at,
        deleted_at=version.deleted_at,
    )


def file_out(entry: Entry) -> DataFileOut:
    """Serialize a file by its first entry, without its pieces."""
    return DataFileOut(path=entry.path, size_bytes=entry.size_bytes, digest=entry.digest)


def table_out(table: DataTable) -> DataTableOut:
    return DataTableOut(
        name=table.name,
        format=table.format,
        files=table.files,
        bad_rows=table.bad_rows,
        note=table.note,
        statistics=TableStatistics.model_validate(table.statistics),
        table_schema=TableSchema.model_validate(table.schema) if table.schema else None,
    )


def preview_out(table: DataTable, rows: Sequence[list[str | None]], offset: int) -> PreviewOut:
    """Serialize some of the first rows."""
    width = len(table.preview[0]) if table.preview else 0
    columns = [column["name"] for column in table.statistics["columns"]]
    return PreviewOut(
        table=table.name,
        columns=columns[:width] if width else columns,
        columns_left_out=max(0, len(columns) - width) if width else 0,
        offset=offset,
        rows=[*rows],
        kept=len(table.preview),
    )


def use_out(use: Use) -> UseOut:
    row = use.row
    return UseOut(
        job=row.workload_id,
        job_name=row.workload.name if row.workload else None,
        run=row.run_id or None,
        declared=row.declared,
        by=user_out(row.by),
        at=row.created_at,
        models=[
            DerivedModelOut(name=model.name, version=model.version, run=model.run_id or None)
            for model in use.models
        ],
    )
