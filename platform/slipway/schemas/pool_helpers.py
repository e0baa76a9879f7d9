"""Wire schemas of the helper of a person in a pool, `slipway pool helper`.

Under `/api/v1`, all of them about one's own helper:

GET    pools/{pool}/helper                      PoolHelperOut; ?seen= and ?wait_s= for a long poll
POST   pools/{pool}/helper/take                 HelperTakeIn → HelperTakeOut with one request
POST   pools/{pool}/helper/requests/{request}   HelperAnswerIn → 204
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from slipway.schemas.base import AnswerSchema, RequestSchema, Text, Whole, line_field

HANDLE_PATTERN = r"^[0-9]{1,18}$"
# A helper abandons a request after this time, and the portal gives it to another helper later.
HELPER_DEADLINE_S = 25.0
REQUEST_EXPIRES_S = 60.0
MAX_HELPER_OUTPUT = 200_000

HelperId = Annotated[str, line_field(r"^[0-9a-f]{16,64}$")]
HelperText = Annotated[Text, Field(max_length=500)]
HelperOutput = Annotated[Text, Field(max_length=MAX_HELPER_OUTPUT)]


class HelperOperation(StrEnum):
    """An operation that a helper knows. It refuses all others."""

    SUBMIT = "submit"
    LOOK = "look"
    CANCEL = "cancel"
    USAGE = "usage"


class HelperStatus(StrEnum):
    """Result of a request: done, refused for good, or to be repeated because Slurm is away."""

    DONE = "done"
    REFUSED = "refused"
    AWAY = "away"


class PoolHelperOut(AnswerSchema):
    """One's own helper in a pool. `command` starts it, null where the pool needs none.

    `version` grows with each request that waits, and `waiting` is their number.
    """

    pool: str
    command: str | None = None
    is_running: bool = False
    seen_at: datetime | None = None
    version: int = 0
    waiting: int = 0


class HelperTakeIn(RequestSchema):
    """A helper takes one request. `helper` is the random id of its process."""

    helper: HelperId


class HelperRequestOut(AnswerSchema):
    """A request. To submit: `name`, `options` of sbatch and `script`. Otherwise: `handles`."""

    id: str
    operation: str
    name: str = ""
    options: dict[str, str] = {}
    script: str = ""
    handles: list[str] = []


class HelperTakeOut(AnswerSchema):
    """The request that a helper took, null if none waits."""

    request: HelperRequestOut | None = None


class CommandOutput(RequestSchema):
    """The result of squeue or sacct."""

    code: Annotated[Whole, Field(ge=-255, le=255)]
    output: HelperOutput = ""
    error: HelperText = ""


class HelperAnswerIn(RequestSchema):
    """The answer to a request that `helper` took.

    Of a submitted job: `handle`, its number, and `owner` with `owner_number`, the account that
    Slurm says it belongs to. Of a look or of usage: the output of the commands.
    """

    helper: HelperId
    status: HelperStatus
    text: HelperText = ""
    handle: Annotated[str, line_field(HANDLE_PATTERN)] | None = None
    owner: Annotated[str, line_field(r"^[A-Za-z0-9._@$-]{1,64}$")] | None = None
    owner_number: Annotated[Whole, Field(ge=0, le=2**32)] | None = None
    squeue: CommandOutput | None = None
    sacct: CommandOutput | None = None
