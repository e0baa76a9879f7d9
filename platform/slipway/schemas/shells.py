"""Wire schemas of shells in the tasks of running jobs.

Under `/api/v1/projects/{project}/jobs/{job}`:

POST   shells                  ShellIn → ShellOut (201); audited
GET    shells/{shell}/output   Server-Sent Events: ?rows=&columns=&offset=
PUT    shells/{shell}/input    ShellInput: 204
PUT    shells/{shell}/size     ShellSize: 204
DELETE shells/{shell}          ends it: 204

The first stream of the output starts the shell, in a window of `rows` and `columns`. A stream that
was cut off continues from `offset`. A shell that nobody follows for a minute ends.

event: ready    {}: it has started
event: output   ShellOutput
event: end      ShellEnd
"""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from slipway.schemas.base import AnswerSchema, RequestSchema, Whole

MAX_INPUT_BYTES = 32 << 10
_BASE64 = r"^[A-Za-z0-9+/]*={0,2}$"
Rows = Annotated[Whole, Field(ge=1, le=1000)]
Columns = Annotated[Whole, Field(ge=1, le=1000)]


class ShellIn(RequestSchema):
    """A shell beside a rank of a job, with its variables.

    Without a rank it is the one that has failed in a job that is kept, and else rank 0.
    """

    rank: Whole | None = Field(default=None, ge=0, le=65_535)


class ShellOut(AnswerSchema):
    """A shell in a task."""

    id: str
    job: str
    rank: int
    attempt: int
    node: str
    created_at: datetime


class ShellInput(RequestSchema):
    """Bytes that were typed, as base64. `offset` is the number of bytes typed before.

    So a request that is repeated types nothing twice.
    """

    offset: Whole = Field(ge=0, le=2**53)
    data: Annotated[str, Field(min_length=4, max_length=44_000, pattern=_BASE64)]


class ShellSize(RequestSchema):
    """The size of the window, in characters."""

    rows: Rows
    columns: Columns


class ShellOutput(AnswerSchema):
    """Bytes that the shell wrote, as base64. `offset` is that of the first one."""

    offset: int
    output: str


class ShellEnd(AnswerSchema):
    """The end of a shell.

    `reason` is `exit`, `closed`, `unattended`, `task_ended`, `lost`, `not_started` or `forbidden`.
    """

    exit_code: int | None = None
    reason: str
    detail: str = ""
