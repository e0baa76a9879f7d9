"""The schema of a table: types, missing words, encoding and separator, for everybody who reads it.

The portal determines a `TableSchema` once, when a version is checked, and stores it with the
version. Jobs read with the same one.
"""

from typing import Annotated, Literal

from pydantic import Field

from slipway.schemas.base import AnswerSchema, Line, RequestSchema

# In columns of numbers, times and booleans. A text column has the empty value alone, because there
# these words may be values: NA is Namibia.
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
}


def format_of(path: str) -> str | None:
    """Return the format of a table by the name of its file, None for one that is no table."""
    name = path.lower()
    return next((format_ for end, format_ in FORMATS.items() if name.endswith(end)), None)


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
ColumnType = Annotated[Line, Field(pattern=TYPE_PATTERN)]


class ReadSettings(RequestSchema):
    """Declarations about the tables of a version; what is not declared is detected.

    `types` names columns and their types. `missing` replaces the words that mean a missing value,
    and then applies to text columns too. `encoding` and `separator` are those of text files.
    """

    types: Annotated[dict[ColumnName, ColumnType], Field(max_length=MAX_COLUMNS)] = {}
    missing: Annotated[list[MissingWord], Field(max_length=100)] | None = None
    encoding: Encoding | None = None
    separator: Separator | None = None


class TableColumn(AnswerSchema):
    """A column: its Arrow type, and a note where the values could be taken for another one."""

    name: str
    type: str
    note: str = ""


class TableSchema(AnswerSchema):
    """The schema that both the portal and jobs read a table with.

    `arrow` is the Arrow schema (IPC, Base64). `missing` are the words that mean a missing value in
    columns of numbers, times and booleans, `missing_in_text` in columns of text. `encoding` and
    `separator` are those of the first file. `is_complete` is false where not all rows were read:
    later rows may widen a type.
    """

    columns: list[TableColumn] = []
    arrow: str = ""
    settings: ReadSettings = ReadSettings()
    missing: list[str] = []
    missing_in_text: list[str] = []
    encoding: str = ""
    separator: str = ""
    notes: list[str] = []
    is_complete: bool = True
