"""Detection of the tables in a version, and of files that are numbered parts of one table."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from portal.datasets.models import Version
from slipway.schemas.tables import TABLE_ENDS, ReadSettings, format_of, is_plain, table_key

MAX_TABLES = 50
MAX_PARTS = 100_000


@dataclass
class Group:
    """The paths of one table."""

    name: str
    format: str
    paths: list[str] = field(default_factory=list)
    parts: int = 0


@dataclass
class Tables:
    """The tables of a version by name, and how many others are beyond the limit."""

    groups: list[Group]
    left_out: int


def tables_in(version: Version) -> Tables:
    """Return the tables of a version.

    Files whose names differ in numbers, UUIDs or values of partitions alone are parts of one:
    `part-0001.parquet` and `part-0002.parquet` become `part-*.parquet`. `train.csv` and `test.csv`
    are two. A version has at most 50 tables, and a table at most 100,000 parts. The
    others are counted. Files that its settings declare as plain are part of none.
    """
    plain_files = ReadSettings.model_validate(version.settings).plain_files
    ends = version.entries.files().filter(path__iregex=_DATABASE_ENDS)
    return group(ends.order_by("path").values_list("path", flat=True).iterator(), plain_files)


_DATABASE_ENDS = rf"({'|'.join(map(re.escape, TABLE_ENDS))})$"


def group(paths: Iterable[str], plain_files: Sequence[str] = ()) -> Tables:
    """Return the tables among paths, without plain files."""
    values: dict[str, Group] = {}
    left_out: set[str] = set()
    for path in paths:
        format_ = format_of(path)
        if format_ is None or is_plain(path, plain_files):
            continue
        key = table_key(path)
        if key not in values:
            if len(values) >= MAX_TABLES:
                left_out.add(key)
                continue
            values[key] = Group(key, format_)
        values[key].parts += 1
        if len(values[key].paths) < MAX_PARTS:
            values[key].paths.append(path)
    for item in values.values():
        # The order in which jobs read them, independent of the database's collation.
        item.paths.sort()
        if len(item.paths) == 1:
            item.name = item.paths[0]
    return Tables(sorted(values.values(), key=lambda entry: entry.name), len(left_out))
