"""Presenters of datasets: rendered tables, an excerpt of the preview, differences."""

from dataclasses import dataclass

from portal.datasets.differences import difference
from portal.datasets.gates import version_of
from portal.datasets.models import Dataset, DataTable, Version, VersionQuerySet
from slipway.schemas.datasets import DifferenceOut
from slipway.schemas.statistics import ColumnStatistics, TableStatistics
from slipway.schemas.tables import TableSchema

ROWS = 25
COLUMNS_SHOWN = 200
SEPARATORS = {",": "Comma", ";": "Semicolon", "\t": "Tab", "|": "Vertical bar"}
_BAR, _HEIGHT = 5, 24


def ready_versions(dataset: Dataset) -> VersionQuerySet:
    """Return the versions people see, newest first."""
    versions = Version.objects.ready().complete().filter(dataset=dataset)
    return versions.order_by("-number")


@dataclass(frozen=True)
class Bar:
    """One bar of a small histogram, in its drawing's own units."""

    x: int
    y: int
    height: int


@dataclass(frozen=True)
class ColumnView:
    """A column and the drawing of how its values are distributed."""

    facts: ColumnStatistics
    missing_percent: float
    bars: list[Bar]
    note: str


@dataclass(frozen=True)
class TableView:
    """A table of a version."""

    row: DataTable
    statistics: TableStatistics
    schema: TableSchema
    columns: list[ColumnView]

    @property
    def columns_left_out(self) -> int:
        """The number of columns that are not drawn."""
        return len(self.statistics.columns) - len(self.columns)

    @property
    def separator(self) -> str:
        """The separator by its name."""
        return SEPARATORS.get(self.schema.separator, self.schema.separator).lower()


def table_views(version: Version) -> list[TableView]:
    """Return the tables of a version with their columns drawn."""
    result = []
    for row in version.tables.defer("preview").order_by("name"):
        statistics = TableStatistics.model_validate(row.statistics)
        schema = TableSchema.model_validate(row.schema)
        notes = {column.name: column.note for column in schema.columns}
        columns = [
            _column(column, notes.get(column.name, ""))
            for column in statistics.columns[:COLUMNS_SHOWN]
        ]
        result.append(TableView(row, statistics, schema, columns))
    return result


def _column(column: ColumnStatistics, note: str) -> ColumnView:
    counts = [part.count for part in column.number.histogram] if column.number else []
    counts = counts or [top.count for top in column.top]
    most = max(counts, default=0) or 1
    heights = [round(_HEIGHT * count / most) for count in counts]
    bars = [Bar(at * _BAR, _HEIGHT - height, height) for at, height in enumerate(heights)]
    everything = column.count + column.missing
    missing_percent = 100 * column.missing / everything if everything else 0.0
    return ColumnView(column, missing_percent, bars, note)


@dataclass(frozen=True)
class TablePreview:
    """Some of the first rows of a table, and where the next and the earlier ones begin."""

    table: str
    columns: list[str]
    rows: list[list[str | None]]
    first: int
    row_count: int
    earlier: int | None
    later: int | None
    columns_left_out: int


def previewed(version: Version, table: str, rows: str) -> TablePreview | None:
    """Return a page of the preview, from row number `rows` on, or None without a table."""
    tables = version.tables.order_by("name")
    row = (tables.filter(name=table).first() if table else None) or tables.first()
    if row is None:
        return None
    row_count = len(row.preview)
    first = (
        min(int(rows), row_count) if rows.isascii() and rows.isdecimal() and len(rows) < 6 else 0
    )
    width = len(row.preview[0]) if row.preview else COLUMNS_SHOWN
    return TablePreview(
        table=row.name,
        columns=[column["name"] for column in row.statistics["columns"]][:width],
        rows=row.preview[first : first + ROWS],
        first=first,
        row_count=row_count,
        earlier=max(0, first - ROWS) if first else None,
        later=first + ROWS if first + ROWS < row_count else None,
        columns_left_out=max(0, len(row.statistics["columns"]) - width),
    )


def changes_of(version: Version, since: str) -> DifferenceOut | None:
    """Return the changes since a version, by default the previous one. None for the first."""
    earlier = version_of(version.dataset, since) if since else None
    if earlier is None or earlier.number is None or earlier.pk == version.pk:
        before = ready_versions(version.dataset).filter(number__lt=version.number or 0)
        earlier = before.first()
    return difference(since=earlier, version=version) if earlier else None
