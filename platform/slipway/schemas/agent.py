"""What a node agent and the portal say to each other, under `/api/agent/v1`.

The agent dials out and authenticates with its node token (`Authorization: Bearer sln_…`). All it
needs to know comes in `Desired`; all it knows goes out in `Heartbeat` and `Report`. Everything may
be repeated: desired state is level-triggered, reports are idempotent by (task, epoch, sequence),
log bytes by their offset. Messages of a stale epoch are answered 409 with code `stale_epoch` and
must make the agent kill what it still runs under that epoch.

POST join                                   Join → Joined (with a one-time join token in the body)
POST heartbeat                              Heartbeat → HeartbeatAnswer, every `heartbeat_s`
GET  desired?seen=VERSION&wait_s=20         Desired; held until `version` > seen, at most wait_s
POST reports                                Reports → ReportsAnswer
PUT  logs/{task_id}/{epoch}/{rank}?offset=  raw bytes; answers {"next_offset": n}
GET  snapshots/{digest}                     a tar of the code, streamed
GET  environments/{digest}                  EnvironmentSpec
POST environments/{digest}/reports          EnvironmentReport (live build log)
POST samples                                Samples: CPU, memory and GPU use of tasks
"""

from typing import Annotated, Literal

from pydantic import Field

from slipway.schemas.base import AnswerSchema, Line, RequestSchema
from slipway.schemas.workloads import ReasonCode, Resources

Rank = Annotated[int, Field(ge=0, le=65_535)]


class GpuFacts(AnswerSchema):
    index: int
    model: str
    memory_bytes: int


class NodeFacts(AnswerSchema):
    """What a machine is: what it can give to tasks, and how its peers reach it."""

    capacity: Resources
    gpus: list[GpuFacts] = []
    backends: list[str]
    address: Annotated[Line, Field(max_length=253)]
    labels: dict[str, str] = {}
    agent_version: Annotated[Line, Field(max_length=32)]


class Join(RequestSchema):
    join_token: Annotated[Line, Field(max_length=200)]
    name: Annotated[Line, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?$")]
    facts: NodeFacts


class Joined(AnswerSchema):
    """The only answer that carries the node token."""

    node_id: str
    node_token: str


class WarmFacts(AnswerSchema):
    """A process the agent keeps warm, and the memory that costs."""

    flavour: Annotated[Line, Field(max_length=32)]
    state: Literal["starting", "ready", "failed"]
    memory_bytes: int = Field(ge=0)


class Heartbeat(RequestSchema):
    """Renews the leases of what the node runs. `boot_id` is new with every start of the agent."""

    boot_id: Annotated[Line, Field(max_length=64)]
    facts: NodeFacts
    cpu_percent: float = Field(ge=0, le=100)
    memory_used_bytes: int = Field(ge=0)
    running: list["TaskKey"] = []
    warm: list[WarmFacts] = []


class TaskKey(AnswerSchema):
    task_id: str
    epoch: int


class HeartbeatAnswer(AnswerSchema):
    """`lease_s`: without a successful heartbeat for this long the agent stops its tasks itself."""

    heartbeat_s: float
    lease_s: float
    fenced: list[TaskKey] = []


class Rendezvous(AnswerSchema):
    """Where the ranks of a gang meet. Task 0 opens the port and reports it; the others wait.

    `agent_store` says that the store behind it is served by the agent of task 0 and not by rank 0;
    the portal hands it on as it came.
    """

    address: str
    port: int
    agent_store: bool = False


class TaskSpec(AnswerSchema):
    """How to run one task: `procs` processes of `argv` (ranks) in a fresh working folder.

    `argv[0]` may be `python`; relative paths are inside the code snapshot. `env` holds the
    project's secrets and the short-lived token: the agent never logs it and never writes it where
    user code of another task can read it. `warm` names the flavour of warm process to fork from; an
    agent that has none starts cold. What outlives an attempt (checkpoints) lives in the folder of
    `persistent_key`.
    """

    backend: Literal["process", "docker"]
    argv: list[str]
    env: dict[str, str] = {}
    snapshot: str | None = None
    environment: str | None = None
    procs: int = Field(default=1, ge=1, le=256)
    world_size: int = Field(default=1, ge=1)
    first_rank: Rank = 0
    resources: Resources
    warm: Literal["torch", "jupyterlab"] | None = None
    persistent_key: str
    stop_grace_s: float = Field(default=10.0, ge=0)
    hang_after_s: float | None = None
    keep_on_fence: bool = False


class DesiredTask(AnswerSchema):
    """One task this node should be running, or should stop. What is not listed must not run."""

    task_id: str
    workload_id: str
    epoch: int
    index: int
    action: Literal["start", "stop"]
    stop_reason: ReasonCode | None = None
    rendezvous: Rendezvous | None = None
    spec: TaskSpec | None = None


class Desired(AnswerSchema):
    """Everything this node should run, as of `version`."""

    version: int
    tasks: list[DesiredTask]
    prewarm: list[Literal["torch", "jupyterlab"]] = []


class RankEnd(AnswerSchema):
    """How one rank ended; `detail` is what the agent found out (last lines, limits, signals)."""

    rank: Rank
    exit_code: int | None = None
    signal: int | None = None


class Report(RequestSchema):
    """One step in the life of a task. `sequence` counts from 1 within (task, epoch).

    `ended` carries reason and detail; `first_step` is sent once, when a rank reports its first
    optimisation step; `rendezvous` carries the address task 0 opened.
    """

    task_id: str
    epoch: int
    sequence: int = Field(ge=1)
    kind: Literal["starting", "rendezvous", "running", "progress", "ended"]
    at_unix_ms: int
    message: Annotated[Line, Field(max_length=2000)] = ""
    rendezvous: Rendezvous | None = None
    step: int | None = None
    warm: bool | None = None
    reason: ReasonCode | None = None
    exit_code: int | None = None
    ranks: list[RankEnd] = []
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None
    cpu_seconds: float | None = None
    log_tail: Annotated[str, Field(max_length=16_384)] = ""


class Reports(RequestSchema):
    reports: list[Report] = Field(max_length=500)


class ReportsAnswer(AnswerSchema):
    """`stale` lists tasks whose epoch has moved on: kill them, report no more."""

    accepted: int
    stale: list[TaskKey] = []


class EnvironmentSpec(AnswerSchema):
    """How to build an environment: pinned requirements, content-addressed by `digest`."""

    digest: str
    requirements: str
    python: str


class EnvironmentReport(RequestSchema):
    state: Literal["building", "ready", "failed"]
    log_offset: int = Field(ge=0)
    log: Annotated[str, Field(max_length=65_536)] = ""
    size_bytes: int | None = None


class Sample(AnswerSchema):
    """Use of one task over the last interval."""

    task_id: str
    epoch: int
    at_unix_ms: int
    cpu_percent: float
    memory_bytes: int
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


class Samples(RequestSchema):
    samples: list[Sample] = Field(max_length=1000)
