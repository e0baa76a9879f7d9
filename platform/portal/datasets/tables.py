"""Which files of a version are tables, and which are numbered parts of one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from portal.datasets.models import Version
from slipway.schemas.tables import format_of

MAX_TABLES = 50
MAX_PARTS = 100_000
_NUMBERS = re.compile(r"\d+")


@dataclass
class Group:
    """The paths of one table."""

    name: str
    format: str
    paths: list[str] = field(default_factory=list)


def tables_in(version: Version) -> list[Group]:
    """Return the tables of a version by name: files that differ in numbers alone are parts of one.

    `part-0001.parquet` and `part-0002.parquet` become `part-*.parquet`; `train.csv` and `test.csv`
    are two. At most 50 tables are found, and 100,000 parts of each.
    """
    ends = version.entries.files().filter(path__iregex=_DATABASE_ENDS)
    return group(ends.order_by("path").values_list("path", flat=True).iterator())


_DATABASE_ENDS = r"\.(csv|tsv|parquet|jsonl|ndjson)$"


def group(paths: Iterable[str]) -> list[Group]:
    """Return the tables among paths."""
    found: dict[str, Group] = {}
    for path in paths:
        format_ = format_of(path)
        if format_ is None:
            continue
        key = _NUMBERS.sub("*", path)
        if key not in found:
            if len(found) >= MAX_TABLES:
                continue
            found[key] = Group(key, format_)
        if len(found[key].paths) < MAX_PARTS:
            found[key].paths.append(path)
    for one in found.values():
        # The order that jobs read them in, whatever that of the database is.
        one.paths.sort()
        if len(one.paths) == 1:
            one.name = one.paths[0]
    return sorted(found.values(), key=lambda one: one.name)
