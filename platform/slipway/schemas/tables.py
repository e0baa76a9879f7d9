"""The schema of a table: types, missing values, encoding and separator, shared by all readers.

The portal determines a `TableSchema` once, when a version is checked, and stores it with the
version. Jobs read with the same one.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Literal
from urllib.parse import unquote

from pydantic import Field

from slipway.schemas.base import AnswerSchema, Line, RequestSchema, line_field

# Missing values in columns of numbers, times and booleans. In a text column only the empty value
# is missing, because these words may be values: NA is Namibia.
MISSING_WORDS = ("NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None", "none")
TYPE_PATTERN = (
    r"^(string|json|bool|double|float|u?int(8|16|32|64)|date|timestamp|timestamp_utc"
    r"|decimal\([1-9][0-9]?, ?[0-9]{1,2}\))$"
)
MAX_COLUMNS = 20_000
MAX_ROW_BYTES = 32 * 1024**2
FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".orc": "orc",
    ".xlsx": "xlsx",
}
# Text formats only: the others are compressed internally.
COMPRESSED_FORMATS = ("csv", "jsonl")
COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}
TABLE_ENDS = (
    *FORMATS,
    *(
        end + packed
        for end, format_ in FORMATS.items()
        if format_ in COMPRESSED_FORMATS
        for packed in COMPRESSIONS
    ),
)
# Missing value in paths written by Hive and Spark.
_MISSING_PARTITION = "__HIVE_DEFAULT_PARTITION__"
_PARTITION = re.compile(r"[^=/]+=")
# Spark and Arrow write UUIDs in the names of parts.
_PART_NUMBER = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9]+"
)


def _table_end(path: str) -> str:
    name = path.lower()
    return next((end for end in TABLE_ENDS if name.endswith(end)), "")


def format_of(path: str) -> str | None:
    """Return the format of a table by its file name, None for other files."""
    end = _table_end(path)
    if not end:
        return None
    return FORMATS.get(end) or FORMATS[end[: end.rindex(".")]]


def compression_of(path: str) -> str | None:
    """Return the compression of a file by its name, None for an uncompressed one."""
    name = path.lower()
    return next((kind for end, kind in COMPRESSIONS.items() if name.endswith(end)), None)


def is_partition(folder: str) -> bool:
    """Return whether the name of a folder contains the value of a column: `year=2026`."""
    return _PARTITION.match(folder) is not None


def partition_values(path: str) -> dict[str, str | None]:
    """Return the values in the folder names of a path, by column.

    Raises ValueError if two folders name the same column.
    """
    values: dict[str, str | None] = {}
    for name, value in _partitions(path):
        if name in values:
            raise ValueError(f"Two folders of its path name the column {name[:100]}.")
        values[name] = value
    return values


def _partitions(path: str) -> Iterator[tuple[str, str | None]]:
    for folder in path.split("/")[:-1]:
        if is_partition(folder):
            name, _equals, value = folder.partition("=")
            yield name, None if value == _MISSING_PARTITION else _unescaped(value)


def _unescaped(value: str) -> str:
    """Return a value without the escapes (`%2F`) that Hive and Spark write."""
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        return value


def distinct_partitions(paths: Iterable[str]) -> dict[str, list[str | None]]:
    """Return the columns in the folder names of these paths, each with its distinct values."""
    values: dict[str, dict[str | None, None]] = {}
    for path in paths:
        for name, value in _partitions(path):
            values.setdefault(name, {})[value] = None
    return {name: list(distinct) for name, distinct in values.items()}


def table_key(path: str) -> str:
    """Return the common key of all parts of a table.

    Names of parts differ only in numbers, UUIDs and values of partition folders.
    """
    *folders, name = path.split("/")
    keys = [
        f"{folder.partition('=')[0]}=*" if is_partition(folder) else _PART_NUMBER.sub("*", folder)
        for folder in folders
    ]
    stem = name[: len(name) - len(_table_end(name))]
    return "/".join([*keys, _PART_NUMBER.sub("*", stem) + name[len(stem) :]])


def matches_pattern(path: str, pattern: str) -> bool:
    """Return whether a pattern of plain files (`ReadSettings.plain_files`) matches a path."""
    return fnmatchcase(path if "/" in pattern else path.rpartition("/")[2], pattern)


def is_plain(path: str, patterns: Iterable[str]) -> bool:
    """Return whether a file is declared as plain, and so belongs to no table."""
    return any(matches_pattern(path, pattern) for pattern in patterns)


Encoding = Literal[
    "utf-8",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "latin-1",
    "iso-8859-2",
    "iso-8859-15",
    "cp1250",
    "cp1251",
    "cp1252",
    "koi8-r",
    "shift_jis",
    "euc-jp",
    "euc-kr",
    "gb18030",
    "big5",
]
Separator = Literal[",", ";", "\t", "|"]
ColumnName = Annotated[Line, Field(min_length=1, max_length=1000)]
MissingWord = Annotated[Line, Field(max_length=100)]
ColumnType = Annotated[Line, line_field(TYPE_PATTERN)]
FilePattern = Annotated[Line, Field(min_length=1, max_length=1000)]


class ReadSettings(RequestSchema):
    """Declarations about the tables of a version. Everything else is detected.

    `types` declares the types of columns by name. `missing` replaces the words for missing values,
    and then applies to text columns too. `encoding` and `separator` apply to text files, and
    `sheet` selects the sheet of Excel workbooks. `plain_files` are patterns of files that are
    stored unchanged and not read as tables: `*.xlsx` matches names in all folders, a pattern with
    a slash the whole path.
    """

    types: Annotated[dict[ColumnName, ColumnType], Field(max_length=MAX_COLUMNS)] = {}
    missing: Annotated[list[MissingWord], Field(max_length=100)] | None = None
    encoding: Encoding | None = None
    separator: Separator | None = None
    sheet: Annotated[Line, Field(min_length=1, max_length=100)] | None = None
    plain_files: Annotated[list[FilePattern], Field(max_length=20)] = []


class TableColumn(AnswerSchema):
    """A column: its Arrow type, and a note if its values are ambiguous."""

    name: str
    type: str
    note: str = ""


class TableSchema(AnswerSchema):
    """The schema with which the portal and jobs read a table.

    `arrow` is the Arrow schema (IPC, Base64). `missing` are the words for missing values in columns
    of numbers, times and booleans, `missing_in_text` in columns of text. `encoding` and
    `separator` are those of the first file. `partitions` are the columns from folder names.
    `is_complete` is false if not all rows were read, so that later rows may widen a type.
    """

    columns: list[TableColumn] = []
    arrow: str = ""
    settings: ReadSettings = ReadSettings()
    missing: list[str] = []
    missing_in_text: list[str] = []
    encoding: str = ""
    separator: str = ""
    partitions: list[str] = []
    notes: list[str] = []
    is_complete: bool = True
