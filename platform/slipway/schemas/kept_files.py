"""Wire schemas of the files that a job wrote into its working folder.

They are uploaded at the end of each attempt, also of one that failed, as artifacts of the job's
run: in the folder `files/` those of the first task, in `files/rank-N/` those of the task whose
first rank is N.
"""

from typing import Annotated

from pydantic import Field

from slipway.schemas.base import AnswerSchema, Line, RequestSchema, Whole

DEFAULT_KEEP = ["*"]
DEFAULT_LIMIT_BYTES = 2 * 10**9
MAX_LIMIT_BYTES = 10**12
MOST_PATTERNS = 50
# A glob: with a slash it is matched with the path, without one with the name of a file.
Pattern = Annotated[Line, Field(min_length=1, max_length=200)]
Bytes = Annotated[Whole, Field(ge=0, le=2**60)]


class KeptFile(AnswerSchema):
    """A file that was uploaded. `path` is relative to the working folder, `kind` what wrote it."""

    path: str
    size_bytes: int
    kind: str = ""


class LeftOutFile(AnswerSchema):
    """A file that was not uploaded, and why."""

    path: str
    size_bytes: int
    reason: str


class JobFiles(AnswerSchema):
    """Files of one task in one attempt. The lists name at most a hundred each, the counts all.

    `prefix` is their folder among the artifacts of the job's run. `error` says why nothing, or not
    everything, could be looked at.
    """

    attempt: int
    rank: int
    prefix: str
    kept: list[KeptFile] = []
    left_out: list[LeftOutFile] = []
    kept_count: int = 0
    kept_bytes: int = 0
    left_out_count: int = 0
    left_out_bytes: int = 0
    error: str = ""


class ReportedFile(RequestSchema):
    """A file in the report of a node. `reason` says why it was left out."""

    path: Annotated[Line, Field(max_length=400)]
    size_bytes: Bytes
    reason: Annotated[Line, Field(max_length=300)] = ""


class FilesReport(RequestSchema):
    """Report of a node on the files of one task, see `JobFiles`."""

    rank: Whole = Field(ge=0, le=65_535)
    prefix: Annotated[Line, Field(max_length=100)] = "files"
    kept: list[ReportedFile] = Field(default=[], max_length=200)
    left_out: list[ReportedFile] = Field(default=[], max_length=200)
    kept_count: Bytes = 0
    kept_bytes: Bytes = 0
    left_out_count: Bytes = 0
    left_out_bytes: Bytes = 0
    error: Annotated[Line, Field(max_length=300)] = ""
