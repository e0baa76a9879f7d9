"""Wire schemas of pools: machines that another scheduler allocates.

Under `/api/v1`:

GET    pools              PageOf[PoolOut]; ?project= for those that a project may use
POST   pools              PoolIn → PoolOut (201), administrators
GET    pools/{pool}       PoolOut
PATCH  pools/{pool}       PoolChange → PoolOut, administrators
GET    pools/{pool}/usage       PoolUsageOut: the bill beside the engine's, administrators; ?window=
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
PricePercent = Annotated[Whole, Field(ge=0, le=1000)]
ProjectSlugs = Annotated[list[Slug], Field(max_length=1000)]


class PoolOut(AnswerSchema):
    """A pool. `engine` allocates its machines, and `settings` say how it is reached.

    At most `most_requests` wait or run there at once. `projects` may use it, all of them for null.
    Work that starts now costs `price_percent` of the price of its tier. `problem` is what keeps
    Slipway from the engine. Only administrators see settings and projects.
    """

    id: str
    name: str
    engine: str
    engine_label: str
    is_open: bool
    most_requests: int
    price_percent: int = 100
    waiting: int
    requests: int
    problem: str = ""
    settings: dict[str, Any] = {}
    projects: list[str] | None = None


class AllocationUsageOut(AnswerSchema):
    """An ended allocation: our bill, and what its engine accounts for it.

    `handle` is the engine's name of it. The figures of the engine are null while it has none:
    `is_pending` says whether it will be asked again. `accounted_nano_usd` is its time at the same
    price.
    """

    handle: str
    account: str
    ended_at: datetime
    is_pending: bool
    billed_s: float
    billed_nano_usd: int
    accounted_s: int | None = None
    accounted_cpu_s: int | None = None
    accounted_nano_usd: int | None = None
    resources: str = ""


class PoolUsageOut(AnswerSchema):
    """Our bill of the allocations of a pool that ended in a window, beside that of the engine.

    All times add up the machines of each allocation, and CPU times their CPUs as well. `billed_*`
    and `accounted_*` are of the `accounted` allocations alone. `difference_nano_usd` is positive
    where the engine counts more. `unaccounted_nano_usd` is our bill of all others: those that are
    `pending`, and those that are `unknown` to the accounting of the engine.
    """

    pool: str
    window: str
    allocations: int
    accounted: int
    pending: int
    unknown: int
    billed_s: float
    accounted_s: int
    billed_cpu_s: float
    accounted_cpu_s: int
    billed_nano_usd: int
    accounted_nano_usd: int
    difference_nano_usd: int
    unaccounted_nano_usd: int
    latest: list[AllocationUsageOut] = []


class PoolAccountOut(AnswerSchema):
    """One's own account in the system of a pool. `name` is null until it is proved.

    `command` proves it, run on a machine of that system as that account within the hour. `problem`
    is why the last proof was refused. In a pool that only a helper of each person reaches,
    `command` starts it, also once the account is proved, and `is_helper_running` is not null.
    """

    pool: str
    name: str | None = None
    command: str | None = None
    linked_at: datetime | None = None
    problem: str = ""
    is_helper_running: bool | None = None


class PoolIn(RequestSchema):
    """A new pool, for all projects unless some are given."""

    name: PoolSlug
    engine: Annotated[Slug, Field(max_length=16)]
    settings: JsonObject = {}
    most_requests: Requests = 8
    price_percent: PricePercent = 100
    projects: ProjectSlugs | None = None


class PoolChange(RequestSchema):
    """Changes of a pool. `settings` replaces all of them. `projects` as null means all projects.

    `price_percent` counts for work that starts from now on.
    """

    settings: JsonObject | None = None
    most_requests: Requests | None = None
    price_percent: PricePercent | None = None
    is_open: Truth | None = None
    projects: ProjectSlugs | None = None
