"""Tables that are read twice: by the portal for its pages, and by the SDK for a job."""

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import slipway
from slipway.datasets import dataset
from slipway.schemas.datasets import DataTableOut


@dataclass(frozen=True)
class BothSides:
    """One table as the portal describes it, and as a job reads it."""

    table: DataTableOut
    preview: list[list[str | None]]
    arrow: Any
    pandas: Any
    rows: list[dict[str, Any]]

    @property
    def values(self) -> dict[str, list[Any]]:
        """The columns as a job has them."""
        columns: dict[str, list[Any]] = self.arrow.to_pydict()
        return columns

    @property
    def types(self) -> dict[str, str]:
        """The types on the page, which are those in a job."""
        return {column.name: column.type for column in self.table.statistics.columns}


def push_and_read(
    alice: slipway.Client, project: str, folder: Path, files: Mapping[str, bytes], **options: Any
) -> BothSides:
    """Push files that make one table, read it both ways, and compare all that both sides say."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    name = f"d{len(list(alice.datasets.list(project=project)))}"
    version = alice.datasets.push(name, folder, project=project, **options)
    (table,) = alice.datasets.tables(name, version.number or 0, project=project)
    preview = alice.datasets.preview(name, version.number or 0, project=project, limit=200)
    loaded = dataset(version.reference, project=project, client=alice)
    both = BothSides(table, preview.rows, loaded.arrow(), loaded.pandas(), list(loaded))
    require_agreement(both)
    return both


def require_agreement(both: BothSides) -> None:
    """Assert that names, types, counts and values are the same on both sides."""
    columns = both.table.statistics.columns
    arrow = both.arrow
    assert [column.name for column in columns] == arrow.column_names
    assert list(both.pandas.columns) == arrow.column_names
    assert [column.type for column in columns] == [str(field.type) for field in arrow.schema]
    assert arrow.num_rows == both.table.statistics.rows == len(both.pandas) == len(both.rows)
    values = arrow.to_pydict()
    assert _same(both.rows, arrow.to_pylist())
    for at, column in enumerate(columns):
        cells = values[column.name]
        assert column.missing == sum(value is None for value in cells), column.name
        assert column.count == sum(value is not None for value in cells), column.name
        if column.distinct is not None and column.distinct_is_exact:
            assert column.distinct == len({value for value in cells if value is not None})
        assert (column.distinct or 0) <= column.count
        if at < 200:
            shown = [row[at] for row in both.preview]
            assert [text is None for text in shown] == [value is None for value in cells[:200]]
            if column.kind == "text":
                assert shown == [
                    value and value[:200].replace("\0", "\ufffd") for value in cells[:200]
                ]
            if column.kind == "integer":
                assert shown == [value if value is None else str(value) for value in cells[:200]]
        require_same_in_pandas(both.pandas[column.name], cells)


def require_same_in_pandas(series: Any, values: list[Any]) -> None:
    """Assert that a column of pandas holds exactly the values of Arrow."""
    for theirs, own in zip(series.tolist(), values, strict=True):
        if own is None:
            assert str(theirs) in ("None", "nan", "<NA>", "NaT")
        elif isinstance(own, list | dict):
            assert _same(_plain(theirs), own)
        else:
            assert _same(theirs, own), (theirs, own)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)
