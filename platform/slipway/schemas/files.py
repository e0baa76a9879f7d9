"""Files and links to them on the wire."""

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from slipway.schemas.accounts import UserOut
from slipway.schemas.base import AnswerSchema, Line, RequestSchema, Whole

FileName = Annotated[Line, Field(min_length=1, max_length=255, pattern=r"^[^/\\]+$")]
Seconds = Annotated[Whole, Field(ge=1, le=900)]


class FileOut(AnswerSchema):
    """A file. `project` is the slug of its project, `sha256` has 64 hex digits."""

    id: str
    project: str
    name: str
    size_bytes: int
    sha256: str
    created_at: datetime
    created_by: UserOut


class DownloadLinkIn(RequestSchema):
    """A download link to create. Anyone with the link can use it for `expires_in_seconds`."""

    expires_in_seconds: Seconds = 300


class UploadLinkIn(RequestSchema):
    """A link to create that uploads one file of that name, once."""

    name: FileName
    expires_in_seconds: Seconds = 300


class LinkOut(AnswerSchema):
    """A link: send `method` to `url` before `expires_at`. A token is neither needed nor checked.

    It stops working immediately when its creator loses access.
    """

    url: str
    method: Literal["GET", "PUT"]
    file_id: str
    expires_at: datetime
