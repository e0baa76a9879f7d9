"""Differences between two versions of a dataset."""

from django.db.models import Exists, OuterRef, QuerySet

from portal.datasets.models import DataTable, Entry, Version
from slipway.schemas.datasets import ChangedFiles, ColumnShift, DifferenceOut, TableDifference
from slipway.schemas.statistics import ColumnStatistics, TableStatistics

_PATHS_SHOWN = 100


def difference(*, since: Version, version: Version) -> DifferenceOut:
    """Compare two versions of one dataset: files, tables, columns and how their values shifted."""
    return DifferenceOut(
        since=since.number or 0,
        number=version.number or 0,
        added=_changed_files(_unlike(version, since)),
        removed=_changed_files(_unlike(since, version)),
        changed=_changed_files(_changed(version, since)),
        size_bytes_before=since.size_bytes,
        size_bytes_after=version.size_bytes,
        tables=_tables(since, version),
    )


def _unlike(version: Version, other: Version) -> QuerySet[Entry]:
    there = Entry.objects.filter(version=other, index=0, key=OuterRef("key"))
    return version.entries.files().filter(~Exists(there))


def _changed(version: Version, other: Version) -> QuerySet[Entry]:
    there = Entry.objects.filter(version=other, index=0, key=OuterRef("key"))
    return version.entries.files().filter(Exists(there.exclude(digest=OuterRef("digest"))))


def _changed_files(entries: QuerySet[Entry]) -> ChangedFiles:
    paths = entries.order_by("path").values_list("path", flat=True)
    return ChangedFiles(count=entries.count(), paths=list(paths[:_PATHS_SHOWN]))


def _tables(since: Version, version: Version) -> list[TableDifference]:
    old = {table.name: _statistics(table) for table in since.tables.defer("preview")}
    new = {table.name: _statistics(table) for table in version.tables.defer("preview")}
    table_differences = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        columns = _columns(before, after) if before and after else []
        change = "removed" if after is None else "added" if before is None else "same"
        if before and after and (columns or before.rows != after.rows):
            change = "changed"
        table_differences.append(
            TableDifference(
                name=name,
                change=change,
                rows_before=before.rows if before else None,
                rows_after=after.rows if after else None,
                columns=columns,
            )
        )
    return table_differences


def _statistics(table: DataTable) -> TableStatistics:
    return TableStatistics.model_validate(table.statistics)


def _columns(before: TableStatistics, after: TableStatistics) -> list[ColumnShift]:
    """Return the columns that differ, those with another type first, then by how far they moved."""
    old = {column.name: column for column in before.columns}
    new = {column.name: column for column in after.columns}
    gone = [
        ColumnShift(name=name, change="removed", before=old[name].type)
        for name in old
        if name not in new
    ]
    came = [
        ColumnShift(name=name, change="added", after=new[name].type)
        for name in new
        if name not in old
    ]
    both = [_shift(old[name], new[name]) for name in old if name in new]
    moved = [shift for shift in both if shift is not None]
    moved.sort(
        key=lambda column_shift: (
            column_shift.change != "type",
            -max(column_shift.mean_shift or 0, column_shift.share_shift or 0),
        )
    )
    return [*gone, *came, *moved]


def _shift(old: ColumnStatistics, new: ColumnStatistics) -> ColumnShift | None:
    if old == new:
        return None
    means = (old.number.mean, new.number.mean) if old.number and new.number else (None, None)
    return ColumnShift(
        name=old.name,
        change="values" if old.type == new.type else "type",
        before=old.type,
        after=new.type,
        missing_before=_missing(old),
        missing_after=_missing(new),
        mean_before=means[0],
        mean_after=means[1],
        mean_shift=_mean_shift(old, new),
        share_shift=_share_shift(old, new),
    )


def _missing(column: ColumnStatistics) -> float:
    return column.missing / max(1, column.count + column.missing)


def _mean_shift(old: ColumnStatistics, new: ColumnStatistics) -> float | None:
    if old.number is None or new.number is None:
        return None
    moved = abs(new.number.mean - old.number.mean)
    if not moved:
        return 0.0
    return min(1e9, moved / old.number.std) if old.number.std else None


def _share_shift(old: ColumnStatistics, new: ColumnStatistics) -> float | None:
    """Return by how much the share of one frequent value changed at most."""
    if not old.top or not new.top or not old.count or not new.count:
        return None
    before = {top.value: top.count / old.count for top in old.top}
    after = {top.value: top.count / new.count for top in new.top}
    # A value missing from a full list may only be rarer than the rarest one listed, so compare just
    # the values in both lists.
    both = before.keys() & after.keys() if len(old.top) > _FEW else before.keys() | after.keys()
    return max((abs(after.get(item, 0.0) - before.get(item, 0.0)) for item in both), default=None)


_FEW = 19
