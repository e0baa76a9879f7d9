"""Wire schemas of datasets: immutable versions, made of files that are stored once.

Under `/api/v1/projects/{project}/datasets`:

GET    .                                PageOf[DatasetOut]; ?q=
POST   .                                DatasetIn → DatasetOut (201)
GET    {dataset}                        DatasetOut
PATCH  {dataset}                        DatasetEdit → DatasetOut
DELETE {dataset}                        204; can be undone for three days
POST   {dataset}/restore                → DatasetOut
POST   {dataset}/pieces                 frames of pieces (application/octet-stream) → PiecesStored
GET    {dataset}/versions               PageOf[VersionOut]: those that are ready, newest first
POST   {dataset}/versions               DraftIn → VersionOut (201): a draft nobody else sees
GET    {dataset}/versions/{version}     VersionOut; a number, `latest`, or the id of a draft
DELETE {dataset}/versions/{version}     204; a draft at once, a version can be undone
POST   {dataset}/versions/{version}/restore   → VersionOut
POST   {dataset}/versions/{version}/files     FilesIn → MissingPieces
POST   {dataset}/versions/{version}/append    bytes of one piece: ?path=&offset=&size_bytes=
                                              → Received
POST   {dataset}/versions/{version}/commit    CommitIn → VersionOut
GET    {dataset}/versions/{version}/files     PageOf[DataFileOut]; ?q=
GET    {dataset}/versions/{version}/manifest  application/x-ndjson of DataFileOut
GET    {dataset}/versions/{version}/content   bytes of one file: ?path=&offset=
GET    {dataset}/versions/{version}/archive   a tar: ?after=&below_bytes=
GET    {dataset}/versions/{version}/tables    list[DataTableOut]
GET    {dataset}/versions/{version}/preview   PreviewOut: ?table=&offset=&limit=
GET    {dataset}/versions/{version}/changes   DifferenceOut: ?since=
GET    {dataset}/versions/{version}/uses      list[UseOut]
POST   {dataset}/versions/{version}/uses      UseIn → UseOut

A file is sent in pieces of `PIECE_BYTES`, the last one shorter; an empty file has none. Its
`digest` is the SHA-256 of its one piece, and of the digests (as bytes) of its pieces, one after the
other, where it has several or none. A piece the project has is never requested again, so an
interrupted upload can resume. A *frame* is the 32 bytes of a piece's SHA-256, its length as
8 bytes (big endian), and its bytes.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, Field

from slipway.schemas.accounts import UserOut
from slipway.schemas.base import AnswerSchema, Line, RequestSchema, Text, Truth, Whole
from slipway.schemas.names import path_error
from slipway.schemas.statistics import TableStatistics
from slipway.schemas.tables import ReadSettings, TableSchema

PIECE_BYTES = 16 * 1024**2
BUNDLE_BYTES = 32 * 1024**2
FILES_AT_ONCE = 1000
MAX_FILE_BYTES = 64 * 1024**3
MAX_FILES = 1_000_000
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}$"
REFERENCE_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,62}(:(latest|[1-9][0-9]{0,8}))?$"
_SHA256 = r"^[0-9a-f]{64}$"


def digest_of(pieces: Sequence[str]) -> str:
    """Return the digest of a file from those of its pieces, 64 hex digits each."""
    if len(pieces) == 1:
        return pieces[0]
    return hashlib.sha256(b"".join(bytes.fromhex(piece) for piece in pieces)).hexdigest()


def pieces_in(size_bytes: int) -> int:
    """Return how many pieces a file of that size has."""
    return -(-size_bytes // PIECE_BYTES)


def key_of(path: str) -> str:
    """Return the sort key of a file in a version."""
    return hashlib.sha256(path.encode()).hexdigest()


MAX_PATH_BYTES = 1000


def checked_path(path: str) -> str:
    """Return a path inside a version. Raises ValueError for a path that could leave it."""
    fault = path_error(path, max_bytes=MAX_PATH_BYTES)
    if fault is not None:
        raise ValueError(fault)
    return path


Sha256 = Annotated[str, Field(pattern=_SHA256)]
DatasetName = Annotated[str, Field(pattern=NAME_PATTERN)]
DatasetReference = Annotated[str, Field(pattern=REFERENCE_PATTERN)]
DataPath = Annotated[Line, Field(min_length=1, max_length=1000), AfterValidator(checked_path)]
RunId = Annotated[str, Field(pattern=r"^[0-9a-zA-Z_-]{1,64}$")]


class VersionState(StrEnum):
    """State of a version. Only a ready one has a number and is visible to others."""

    DRAFT = "draft"
    CHECKING = "checking"
    READY = "ready"
    REFUSED = "refused"
    DELETED = "deleted"
    PURGED = "purged"


class DatasetIn(RequestSchema):
    """A dataset to create."""

    name: DatasetName
    description: Annotated[Text, Field(max_length=2000)] = ""


class DatasetEdit(RequestSchema):
    """Changes to a dataset."""

    description: Annotated[Text, Field(max_length=2000)]


class DatasetOut(AnswerSchema):
    """A dataset. `latest` is the number of its newest version, null if there is none."""

    id: str
    project: str
    name: str
    description: str
    latest: int | None
    versions: int
    size_bytes: int
    created_by: UserOut
    created_at: datetime
    deleted_at: datetime | None = None


class DraftIn(RequestSchema):
    """A version to create. `note` describes the changes."""

    note: Annotated[Text, Field(max_length=2000)] = ""


class CommitIn(RequestSchema):
    """Check the files of a draft and make it a version.

    With `allow_bad_rows`, rows that cannot be read are omitted from the tables, on the page and in
    jobs. Without it such a draft is refused, with line and column. `settings` declare types,
    missing values, encoding and separator. Without them the settings of an earlier commit apply.
    """

    allow_bad_rows: Truth = False
    settings: ReadSettings | None = None


class TableProblem(AnswerSchema):
    """A part of a file that does not match its format. Lines count from 1."""

    path: str
    line: int | None = None
    column: str | None = None
    message: str


class DatasetVersionOut(AnswerSchema):
    """A version. `reference` is its name in jobs, null until it is ready.

    `reason` says why it was refused, and `same_as` names the identical version in that case.
    `settings` are the read settings of its tables. `tables_left_out` counts the tables beyond the
    limit of 50. Their files are in the version, but have neither schema nor statistics.
    """

    id: str
    dataset: str
    number: int | None
    reference: str | None
    state: VersionState
    note: str
    digest: str | None
    files: int
    size_bytes: int
    rows: int | None
    reason: str = ""
    same_as: int | None = None
    settings: ReadSettings = ReadSettings()
    bad_rows: int = 0
    problems: list[TableProblem] = []
    tables_left_out: int = 0
    created_by: UserOut
    created_at: datetime
    ready_at: datetime | None = None
    deleted_at: datetime | None = None


class DataFileIn(RequestSchema):
    """A file of a draft: its path, its size, and the digests of its pieces."""

    path: DataPath
    size_bytes: Whole = Field(ge=0, le=MAX_FILE_BYTES)
    pieces: list[Sha256] = Field(max_length=MAX_FILE_BYTES // PIECE_BYTES)


class FilesIn(RequestSchema):
    """Files to add to a draft. An existing path is replaced."""

    files: list[DataFileIn] = Field(min_length=1, max_length=FILES_AT_ONCE)


class MissingPieces(AnswerSchema):
    """Digests of the pieces to upload. The project already has the others."""

    missing: list[str]


class PiecesStored(AnswerSchema):
    """Number of uploaded pieces that were stored. The others were not requested."""

    kept: int
    size_bytes: int


class UploadProgress(AnswerSchema):
    """Received bytes of a file, and the offset of the next piece."""

    path: str
    received_bytes: int
    size_bytes: int


class DataFileOut(AnswerSchema):
    """A file of a version. Only the manifest contains `pieces`."""

    path: str
    size_bytes: int
    digest: str
    pieces: list[str] = []


class DataTableOut(AnswerSchema):
    """A table in a version: one file, or several numbered parts.

    `note` says why statistics are missing or partial. `table_schema` is the schema that the portal
    and jobs read it with, null if the table was not analyzed.
    """

    name: str
    format: str
    files: int
    bad_rows: int
    note: str = ""
    statistics: TableStatistics
    table_schema: TableSchema | None = None


class PreviewOut(AnswerSchema):
    """Some of the first rows of a table, with every value as text (null if it is missing).

    `columns_left_out` counts the columns that are not shown.
    """

    table: str
    columns: list[str]
    columns_left_out: int = 0
    offset: int
    rows: list[list[str | None]]
    kept: int


class ChangedFiles(AnswerSchema):
    """Number of files, and the first hundred of their paths."""

    count: int
    paths: list[str]


class ColumnShift(AnswerSchema):
    """Difference of a column between two versions.

    `mean_shift` is in standard deviations of the older version. `share_shift` is the largest change
    in the share of rows of one frequent value, from 0 to 1.
    """

    name: str
    change: str
    before: str | None = None
    after: str | None = None
    missing_before: float | None = None
    missing_after: float | None = None
    mean_before: float | None = None
    mean_after: float | None = None
    mean_shift: float | None = None
    share_shift: float | None = None


class TableDifference(AnswerSchema):
    """Difference of a table. `change` is added, removed, changed or same."""

    name: str
    change: str
    rows_before: int | None = None
    rows_after: int | None = None
    columns: list[ColumnShift] = []


class DifferenceOut(AnswerSchema):
    """Changes in a version since another version of the same dataset."""

    since: int
    number: int
    added: ChangedFiles
    removed: ChangedFiles
    changed: ChangedFiles
    size_bytes_before: int
    size_bytes_after: int
    tables: list[TableDifference]


class UseIn(RequestSchema):
    """A use of a version. In a job, its token identifies it. `run` is the MLflow run, if any."""

    run: RunId | None = None


class DerivedModelOut(AnswerSchema):
    """A model version that resulted from a use."""

    name: str
    version: str
    run: str | None = None


class UseOut(AnswerSchema):
    """A job or run that reads a version, and the models it produced."""

    job: str | None = None
    job_name: str | None = None
    run: str | None = None
    declared: bool
    by: UserOut
    at: datetime
    models: list[DerivedModelOut] = []
