"""Wire schemas of pools: machines that another scheduler allocates.

Under `/api/v1`:

GET    pools              PageOf[PoolOut]; ?project= for those that a project may use
POST   pools              PoolIn → PoolOut (201), administrators
GET    pools/{pool}       PoolOut
PATCH  pools/{pool}       PoolChange → PoolOut, administrators
DELETE pools/{pool}       204, administrators; refused while work waits or runs there
GET    pools/{pool}/account    PoolAccountOut: one's own account in the system of the pool
POST   pools/{pool}/account    → PoolAccountOut (201) with the command that proves it
"""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from slipway.schemas.base import AnswerSchema, JsonObject, RequestSchema, Slug, Truth, Whole

PoolSlug = Annotated[Slug, Field(max_length=32)]
Requests = Annotated[Whole, Field(ge=1, le=1000)]
ProjectSlugs = Annotated[list[Slug], Field(max_length=1000)]


class PoolOut(AnswerSchema):
    """A pool. `engine` allocates its machines, and `settings` say how it is reached.

    At most `most_requests` wait or run there at once. `projects` may use it, all of them for null.
    `problem` is what keeps Slipway from the engine. Only administrators see settings and projects.
    """

    id: str
    name: str
    engine: str
    engine_label: str
    is_open: bool
    most_requests: int
    waiting: int
    requests: int
    problem: str = ""
    settings: dict[str, Any] = {}
    projects: list[str] | None = None


class PoolAccountOut(AnswerSchema):
    """One's own account in the system of a pool. `name` is null until it is proved.

    `command` proves it, run on a machine of that system as that account within the hour. `problem`
    is why the last proof was refused.
    """

    pool: str
    name: str | None = None
    command: str | None = None
    linked_at: datetime | None = None
    problem: str = ""


class PoolIn(RequestSchema):
    """A new pool, for all projects unless some are given."""

    name: PoolSlug
    engine: Annotated[Slug, Field(max_length=16)]
    settings: JsonObject = {}
    most_requests: Requests = 8
    projects: ProjectSlugs | None = None


class PoolChange(RequestSchema):
    """Changes of a pool. `settings` replaces all of them. `projects` as null means all projects."""

    settings: JsonObject | None = None
    most_requests: Requests | None = None
    is_open: Truth | None = None
    projects: ProjectSlugs | None = None
