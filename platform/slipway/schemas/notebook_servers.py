"""Wire schemas of notebook servers: for people, the Hub and the servers themselves.

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
POST   servers/{server}/trouble   RouteProblem → HubServer: why browsers do not reach it yet

With the token of its own workload:

POST   labs/{server}/reports      LabReport → LabInstructions
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from slipway.schemas.accounts import NetworkRule
from slipway.schemas.base import AnswerSchema, Line, Number, RequestSchema, Slug, Text, Truth, Whole
from slipway.schemas.environments import EnvironmentReference
from slipway.schemas.training import Tags


def hub_name(server_id: str) -> str:
    """Return the Hub's name of a server. The Hub's names may not contain underscores."""
    return server_id.replace("_", "-", 1)


def server_id_of(name: str) -> str:
    """Return the id of the server with this name in the Hub."""
    return name.replace("-", "_", 1)


class NotebookState(StrEnum):
    """State of a notebook server.

    `starting` includes waiting for capacity. `opening` means that it runs and its route is being
    set up. `ready` means that browsers can open it.
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

    `name` is unique among a person's servers of a project. `requirements` is the text of a
    requirements file. Without it, `environment` names an environment of the project (`vision`, or
    `vision@3` for one version) or `installation`, and without both it is the project's default
    environment, or that of the installation. Later starts use the same version. The server stops
    `idle_minutes` after the last activity, expensive tiers sooner, and always after `max_hours`.
    `daily_start` and `daily_stop` are times such as 08:00, in UTC, at which it starts and stops
    automatically on `days`. `tags` split the cost. `pool` is where another scheduler allocates its
    node; without one it runs on the nodes of the installation. With a `framework` a cluster of it
    runs beside JupyterLab, on the same machine.
    """

    name: Slug = "notebook"
    tier: Slug | None = None
    pool: Slug | None = None
    framework: Literal["ray"] | None = None
    requirements: Annotated[Text, Field(max_length=200_000)] = ""
    environment: EnvironmentReference | None = None
    idle_minutes: Whole = Field(default=60, ge=5, le=10_080)
    max_hours: Number | None = Field(default=None, gt=0, le=720)
    daily_start: TimeOfDay | None = None
    daily_stop: TimeOfDay | None = None
    days: list[Weekday] = Field(default=list(WORKDAYS), min_length=1, max_length=7)
    tags: Tags = {}


class ServerEdit(RequestSchema):
    """Changes to a server. Omitted fields stay unchanged.

    `tier`, `pool`, `max_hours` and `environment` can change only while it is stopped. An empty
    `pool` stands for the nodes of the installation. 0 hours remove the limit. `environment`
    replaces its packages: `vision`, `vision@3`, or `installation`. An empty `daily_start` or
    `daily_stop` removes that time. Times that have passed today apply from the next day on.
    """

    tier: Slug | None = None
    pool: Slug | Literal[""] | None = None
    environment: EnvironmentReference | None = None
    max_hours: Number | None = Field(default=None, ge=0, le=720)
    idle_minutes: Whole | None = Field(default=None, ge=5, le=10_080)
    daily_start: TimeOrNone | None = None
    daily_stop: TimeOrNone | None = None
    days: list[Weekday] | None = Field(default=None, min_length=1, max_length=7)


class ServerOut(AnswerSchema):
    """A notebook server. Money in nano-USD.

    `explanation` describes its state and what it waits for, `why_alive` what prevents it from
    stopping automatically, and `stops_at` when it will stop without activity. `nano_usd_per_hour`
    is the current cost, which stopping saves. Only the owner gets `url`, which opens the server.
    `network` is its network access. `pool` is where another scheduler allocates its node, null for
    the nodes of the installation. `framework` is that of the cluster beside it.
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
    pool: str | None = None
    framework: str | None = None
    nano_usd_per_hour: int
    cost_nano_usd: int
    idle_minutes: int
    idle_minutes_in_force: float
    max_hours: float | None = None
    daily_start: str | None = None
    daily_stop: str | None = None
    days: list[Weekday] = []
    requirements: str = ""
    environment_version: str | None = None
    tags: dict[str, str] = {}
    network: NetworkRule = "open"
    workload: str | None = None
    url: str | None = None
    created_at: datetime
    started_at: datetime | None = None
    active_at: datetime | None = None


class ServerKeyOut(AnswerSchema):
    """Access for the owner's programs, without a browser sign-in.

    `url` is the address of Jupyter's API (below `api/`), with `Authorization: token TOKEN`. The
    token expires with this start of the server.
    """

    url: str
    token: str = Field(repr=False)


class HubServer(AnswerSchema):
    """A server for the Hub: its owner, its address and its token.

    `start` identifies its current start, to which `token` belongs. `progress` is in percent, and
    `message` describes the current step. `address` is `host:port` while the server responds.
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
    """Every server that runs or is about to run. `version` is the value for If-None-Match."""

    version: int
    servers: list[HubServer]


class HubNote(RequestSchema):
    """A message of the Hub about one start of a server. Those about earlier starts are ignored."""

    start: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,40}\.[0-9]{1,10}$")]


class RouteProblem(HubNote):
    """The reason why the Hub could not open the route to a server yet. It retries."""

    why: Annotated[Line, Field(min_length=1, max_length=300)]


class LabReport(RequestSchema):
    """Report of a lab: on its first response, every few seconds, and when its activity changes.

    `attempt` is its SLIPWAY_ATTEMPT, and `sequence` grows with each report. Counts are current.
    `moved` says whether there was activity since the last report: a kernel ran, a terminal had
    input or output, a file was saved, or its processes used the CPU or the network.
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


class LabInstructions(AnswerSchema):
    """Instructions for a lab: when and why it will be stopped, and which files to open again.

    `may_keep` says that activity, or a request to keep it, cancels the stop.
    """

    stops_at: datetime | None = None
    why: str = ""
    may_keep: bool = False
    open_files: list[str] = []
