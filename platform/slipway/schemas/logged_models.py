"""Models that runs logged, on the wire.

Under `/api/v1/projects/{project}`:

GET    runs/{run}/models                        list[LoggedModelOut], newest first, 50 at most
"""

from datetime import datetime

from slipway.schemas.base import AnswerSchema
from slipway.schemas.signatures import SignatureOut


class RegisteredAs(AnswerSchema):
    """A version of a registered model."""

    model: str
    version: int


class LoggedModelOut(AnswerSchema):
    """A model that a run logged. `source` registers it.

    `state` is "ready", "uploading" or "upload failed". `fault` says why the files of the model
    cannot be read; without them `flavors` and `size_bytes` may be unknown.
    """

    source: str
    name: str
    run: str
    step: int | None = None
    created_at: datetime | None = None
    state: str
    flavors: list[str]
    signature: SignatureOut | None = None
    size_bytes: int | None = None
    fault: str = ""
    registered: list[RegisteredAs]
