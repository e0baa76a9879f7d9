"""Notebook servers on the wire: what somebody launches, and what the Hub and the labs are told.

Under `/api/v1`:

GET    projects/{project}/notebooks/servers                  PageOf[ServerOut]; ?state=&mine=
POST   projects/{project}/notebooks/servers                  ServerIn → ServerOut (201)
POST   projects/{project}/notebooks/servers/quote            ServerIn → Quote; nothing is started
GET    projects/{project}/notebooks/servers/{server}         ServerOut
PATCH  projects/{project}/notebooks/servers/{server}         ServerEdit → ServerOut
POST   projects/{project}/notebooks/servers/{server}/start   → ServerOut: again, after it stopped
POST   projects/{project}/notebooks/servers/{server}/stop    → ServerOut
POST   projects/{project}/notebooks/servers/{server}/key     → ServerKeyOut: for its owner
DELETE projects/{project}/notebooks/servers/{server}         204; its files stay
GET    projects/{project}/notebooks/servers/{server}/events  PageOf[WorkloadEventOut]

Under `/api/hub/v1`, with the token of a Hub (`slh_…`):

GET    servers                    HubServers; If-None-Match and ?wait_s= hold the answer
GET    servers/{server}           HubServer
POST   servers/{server}/start     → HubServer
POST   servers/{server}/routed    HubNote → HubServer: browsers reach it from now on
POST   servers/{server}/trouble   HubTrouble → HubServer: why browsers do not reach it yet

With the token of its own workload:

POST   labs/{server}/reports      LabReport → LabOrders
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from slipway.schemas.accounts import NetworkRule
from slipway.schemas.base import AnswerSchema, Line, Number, RequestSchema, Slug, Text, Truth, Whole
from slipway.schemas.training import Tags


def hub_name(server_id: str) -> str:
    """Return what the Hub calls a server: its names may have no underscore."""
    return server_id.replace("_", "-", 1)


def server_id_of(name: str) -> str:
    """Return the id of the server that the Hub calls so."""
    return name.replace("-", "_", 1)


class NotebookState(StrEnum):
    """Where a notebook server stands.

    `starting` covers waiting for a place; `opening` means that it runs and the door is being
    opened; `ready`, that a browser gets in.
    """

    STARTING = "starting"
    OPENING = "opening"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class Weekday(StrEnum):
    """A day of the week, in UTC."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


WORKDAYS = (Weekday.MON, Weekday.TUE, Weekday.WED, Weekday.THU, Weekday.FRI)
TimeOfDay = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
TimeOrNone = Annotated[str, Field(pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9])?$")]


class ServerIn(RequestSchema):
    """A notebook server to launch.

    `name` tells a person's servers of a project apart. `requirements` is the text of a requirements
    file; empty means the environment of the installation. It stops `idle_minutes` after the last
    work, dear tiers sooner, and after `max_hours` in any case. `daily_start` and `daily_stop` are
    times such as 08:00, in UTC, at which it starts and stops by itself on `days`. `tags` split what
    is spent.
    """

    name: Slug = "notebook"
    tier: Slug | None = None
    requirements: Annotated[Text, Field(max_length=200_000)] = ""
    idle_minutes: Whole = Field(default=60, ge=5, le=10_080)
    max_hours: Number | None = Field(default=None, gt=0, le=720)
    daily_start: TimeOfDay | None = None
    daily_stop: TimeOfDay | None = None
    days: list[Weekday] = Field(default=list(WORKDAYS), min_length=1, max_length=7)
    tags: Tags = {}


class ServerEdit(RequestSchema):
    """What a server is and does from now on; what is left out stays as it is.

    `tier` and `max_hours` change while it is stopped; 0 hours take that limit away. An empty
    `daily_start` or `daily_stop` takes that time away. Times that have passed today count from
    their next day on.
    """

    tier: Slug | None = None
    max_hours: Number | None = Field(default=None, ge=0, le=720)
    idle_minutes: Whole | None = Field(default=None, ge=5, le=10_080)
    daily_start: TimeOrNone | None = None
    daily_stop: TimeOrNone | None = None
    days: list[Weekday] | None = Field(default=None, min_length=1, max_length=7)


class ServerOut(AnswerSchema):
    """A notebook server. Money in nano-USD.

    `explanation` says how it stands and what it waits for, `why_alive` what keeps it from stopping
    by itself, and `stops_at` when it will, if nobody does anything in it. `nano_usd_per_hour` is
    what it costs now, so it is what stopping saves. `url` opens it and is given to its owner alone.
    `network` is the rule it runs under: what it reaches of the network.
    """

    id: str
    project: str
    name: str
    owner: str
    is_mine: bool
    state: NotebookState
    explanation: str
    why_alive: str = ""
    next_step: str | None = None
    stops_at: datetime | None = None
    tier: str
    nano_usd_per_hour: int
    cost_nano_usd: int
    idle_minutes: int
    idle_minutes_in_force: float
    max_hours: float | None = None
    daily_start: str | None = None
    daily_stop: str | None = None
    days: list[Weekday] = []
    requirements: str = ""
    tags: dict[str, str] = {}
    network: NetworkRule = "open"
    workload: str | None = None
    url: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    active_at: datetime | None = None


class ServerKeyOut(AnswerSchema):
    """What lets a program of the owner into a server, where no browser signs in.

    `url` is where Jupyter's own API answers (below `api/`), as `Authorization: token TOKEN`. The
    token ends with this start of the server.
    """

    url: str
    token: str = Field(repr=False)


class HubServer(AnswerSchema):
    """A server as the Hub knows it: whose it is, where it answers and by which token it speaks.

    `start` names its present start, of which `token` is. `progress` is how far it has come, of 100;
    `message` the true step in a sentence. `address` is `host:port` while it answers.
    """

    id: str
    user: str
    state: NotebookState
    start: str = ""
    progress: int
    message: str
    address: str | None = None
    token: str = Field(default="", repr=False)


class HubServers(AnswerSchema):
    """Every server that runs or is about to. `version` is what If-None-Match takes."""

    version: int
    servers: list[HubServer]


class HubNote(RequestSchema):
    """What the Hub says of one start of a server; of an earlier start it changes nothing."""

    start: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}\.[0-9]{1,10}$")]


class HubTrouble(HubNote):
    """Why the Hub could not open the door to one start of a server yet; it tries on."""

    why: Annotated[Line, Field(min_length=1, max_length=300)]


class LabReport(RequestSchema):
    """What a lab reports: at once when it answers, then every few seconds, and when work changes.

    `attempt` is its SLIPWAY_ATTEMPT and `sequence` grows with each report. Counts are of now;
    `moved` says whether anything worked since the report before: a kernel ran, a terminal moved, a
    file was saved, its processes used the processor or the network.
    """

    attempt: Whole = Field(ge=0)
    sequence: Whole = Field(ge=0)
    address: Annotated[Line, Field(max_length=260)]
    busy_kernels: Whole = Field(default=0, ge=0, le=100_000)
    kernels: Whole = Field(default=0, ge=0, le=100_000)
    terminals: Whole = Field(default=0, ge=0, le=100_000)
    moved: Truth = False
    why: Annotated[Line, Field(max_length=200)] = ""
    open_files: list[Annotated[Line, Field(max_length=500)]] = Field(default=[], max_length=100)


class LabOrders(AnswerSchema):
    """What a lab is told: when it will be stopped and why, and which files to open again.

    `may_keep` says that work in it, or a wish to keep it, takes that back.
    """

    stops_at: datetime | None = None
    why: str = ""
    may_keep: bool = False
    open_files: list[str] = []
