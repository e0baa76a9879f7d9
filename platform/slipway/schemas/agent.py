"""Messages between a node agent and the portal, under `/api/agent/v1`.

The agent dials out and authenticates with its node token (`Authorization: Bearer sln_…`). It
receives everything in `DesiredState`, and reports everything in `Heartbeat` and `TaskReport`.
Every message may be repeated: desired state is level-triggered, reports are idempotent by
(task, epoch, sequence), log bytes by their offset. Messages of a stale epoch are answered 409 with
code `stale_epoch` and the agent must kill the tasks of that epoch.

POST join                                   Join → JoinResponse (one-time join token in the body)
POST heartbeat                              Heartbeat → HeartbeatAnswer, every `heartbeat_s`
GET  desired?seen=VERSION&wait_s=20         Desired; held until `version` > seen, at most wait_s
POST reports                                Reports → ReportsAnswer
PUT  logs/{task_id}/{epoch}/{rank}?offset=  application/octet-stream, at most 8 MiB → LogAnswer;
                                            empty and with &last=true: the log ends at this offset
GET  snapshots/{digest}                     a tar of the code, streamed
GET  environments/{digest}                  EnvironmentSpec
POST environments/{digest}/reports          EnvironmentReport (live build log) → LogAnswer
PUT  checkpoints/{task_id}/{epoch}/{step}   a checkpoint as `slipway.schemas.checkpoints` packs it,
                                            application/octet-stream → 204; the newest replaces it
GET  checkpoints/{task_id}/{epoch}/{step}   the same bytes, streamed
GET  relay                                  `slipway.schemas.relay.RelayGrant`
POST samples                                Samples: CPU, memory and GPU use of tasks → 204
"""

import re
from ipaddress import ip_address
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from slipway.schemas.backends import BackendName, IsolationLevel
from slipway.schemas.base import (
    AnswerSchema,
    Line,
    Number,
    PythonVersion,
    RequestSchema,
    Truth,
    Whole,
    line_field,
)
from slipway.schemas.frameworks import FrameworkName
from slipway.schemas.kept_files import FilesReport
from slipway.schemas.workloads import Labels, ReasonCode, Resources
from slipway.schemas.workspace_files import FileRequest

Id = Annotated[str, Field(max_length=32)]
Count = Annotated[Whole, Field(ge=0, le=2**53)]
Moment = Annotated[Whole, Field(ge=0, le=2**48)]
Epoch = Annotated[Whole, Field(ge=0, le=2**31 - 1)]
Status = Annotated[Whole, Field(ge=-(2**31), le=2**31 - 1)]
Percent = Annotated[Number, Field(ge=0, le=1_000_000)]
Rank = Annotated[Whole, Field(ge=0, le=65_535)]
Port = Annotated[Whole, Field(ge=1, le=65_535)]
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST_NAME = re.compile(rf"(?:{_LABEL}\.)*{_LABEL}")
_BROADCAST = "255.255.255.255"


def _check_peer(host: str) -> str:
    """Return the address if ranks can connect to it. It reaches their variables and files."""
    try:
        address = ip_address(host)
    except ValueError:
        if _HOST_NAME.fullmatch(host) is None or host.rpartition(".")[2].isdigit():
            raise ValueError("is neither an IP address nor a host name") from None
        return host
    if address.is_unspecified or address.is_multicast or host == _BROADCAST or "%" in host:
        raise ValueError("is not the address of a machine")
    return host


# Address of a task, as ranks on other machines reach it.
PeerHost = Annotated[Line, Field(min_length=1, max_length=253), AfterValidator(_check_peer)]
# Name of a program in `workers.launcher.platform_programs`. Nodes start others cold.
ProgramName = Annotated[Line, Field(min_length=1, max_length=32)]


class GpuFacts(AnswerSchema):
    index: Whole = Field(ge=0, le=1023)
    model: Annotated[Line, Field(max_length=64)]
    memory_bytes: Count


class IsolationFacts(AnswerSchema):
    """Isolation between tasks of different projects in one back end of a node, as measured there.

    `features` lists what the kernel grants (`user`, `mount`, `pid`, `ipc`, `network`, `seccomp`,
    `landlock` …). `detail` says why no stronger level is available. It is empty for the strongest.
    """

    backend: BackendName
    level: IsolationLevel
    features: list[Annotated[Line, Field(max_length=32)]] = Field(default=[], max_length=32)
    detail: Annotated[Line, Field(max_length=500)] = ""


class DiskFacts(AnswerSchema):
    """The disk of a node: its size, the limit of one task, and the reserve that stays free."""

    capacity_bytes: Count
    task_bytes: Count
    reserve_bytes: Count


class NodeFacts(AnswerSchema):
    """Hardware of a machine that tasks can use, its Pythons, and its address for peers."""

    capacity: Resources
    gpus: list[GpuFacts] = Field(default=[], max_length=1024)
    backends: list[Annotated[Line, Field(max_length=16)]] = Field(max_length=8)
    address: Annotated[Line, Field(max_length=253)]
    labels: Labels = {}
    agent_version: Annotated[Line, Field(max_length=32)]
    # Agents that do not report it count as `shared`.
    isolation: list[IsolationFacts] = Field(default=[], max_length=8)
    disk: DiskFacts | None = None
    # Minor versions that environments can be built with. Agents that report none have the usual.
    pythons: list[PythonVersion] = Field(default=[], max_length=32)


class Join(RequestSchema):
    join_token: Annotated[Line, Field(max_length=200)]
    name: Annotated[Line, line_field(r"^[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?$")]
    facts: NodeFacts


class JoinResponse(AnswerSchema):
    """The node token of a new node, which only this response contains."""

    node_id: str
    node_token: str


class WarmFacts(AnswerSchema):
    """A warm process of the agent, and the memory it uses."""

    flavour: Annotated[Line, Field(max_length=32)]
    state: Literal["starting", "ready", "failed"]
    memory_bytes: Whole = Field(ge=0)


class Heartbeat(RequestSchema):
    """Renews the leases of the node's tasks. `boot_id` is new with every start of the agent."""

    boot_id: Annotated[Line, Field(max_length=64)]
    facts: NodeFacts
    cpu_percent: Number = Field(ge=0, le=100)
    memory_used_bytes: Count
    disk_free_bytes: Count | None = None
    running: list["TaskKey"] = Field(default=[], max_length=10_000)
    warm: list[WarmFacts] = Field(default=[], max_length=32)


class TaskKey(AnswerSchema):
    task_id: Id
    epoch: Epoch


class HeartbeatAnswer(AnswerSchema):
    """Without a successful heartbeat for `lease_s` seconds the agent stops its tasks itself."""

    heartbeat_s: float
    lease_s: float
    fenced: list[TaskKey] = []


class Rendezvous(AnswerSchema):
    """Meeting point of the ranks of a gang. Task 0 opens the port and reports it, the others wait.

    `agent_store` says that the agent of task 0 serves the store, instead of rank 0. The portal
    passes it on unchanged.
    """

    address: PeerHost
    port: Port
    agent_store: Truth = False


def _check_distinct(ports: list[int]) -> list[int]:
    if len(set(ports)) != len(ports):
        raise ValueError("lists a port twice")
    return ports


class GangMember(AnswerSchema):
    """Address of one task of a gang, and the port reserved for each of its ranks, in order."""

    address: PeerHost
    ports: Annotated[
        list[Port], Field(min_length=1, max_length=256), AfterValidator(_check_distinct)
    ]


class StoredCheckpoint(AnswerSchema):
    """The latest checkpoint of a workload in the portal's store, from which it resumes.

    `digest` is the SHA-256 of its `size_bytes` as they travel (`slipway.schemas.checkpoints`).
    """

    step: Count
    size_bytes: Count
    digest: Annotated[Line, line_field(r"^[0-9a-f]{64}$")]


class ServiceAddress(AnswerSchema):
    """A service of the platform, as tasks reach it."""

    host: Annotated[Line, Field(min_length=1, max_length=253)]
    port: Whole = Field(ge=1, le=65_535)


class TaskSpec(AnswerSchema):
    """One task to run: `procs` processes of `argv` (ranks) in a fresh working folder.

    `argv[0]` may be `python`. Relative paths are inside the code snapshot. `env` holds the
    project's secrets and the short-lived token: the agent never logs it and never writes it where
    user code of another task can read it. `warm` names the flavour of warm process to fork from. An
    agent that has none starts cold. Data that outlives an attempt (checkpoints) is in the folder of
    `persistent_key`, and data of one person in that of `personal_key`. `gpu_indices` are the GPUs
    of the node this task may see, and no others. `network` is the project's rule: `platform`
    reaches only the `services`. Ranks start once that folder has `checkpoint`, or a newer one. The
    newest one, of at most `copy_limit_bytes`, is copied to the portal (0: none is). At the end,
    files of the working folder that the task wrote and that match a glob of `keep` become artifacts
    of its run, up to `keep_limit_bytes`. With a `framework` the ranks form its cluster, and `argv`
    runs on rank 0 alone. With `shells` people may open shells in it, for `keep_failed_s` seconds
    also after it has failed.
    """

    backend: BackendName
    argv: list[str]
    env: dict[str, str] = {}
    snapshot: str | None = None
    environment: str | None = None
    procs: int = Field(default=1, ge=1, le=256)
    world_size: int = Field(default=1, ge=1)
    first_rank: Rank = 0
    resources: Resources
    gpu_indices: list[int] = []
    warm: ProgramName | None = None
    persistent_key: str
    personal_key: str | None = None
    network: Literal["open", "platform"] = "open"
    services: list[ServiceAddress] = []
    stop_grace_s: float = Field(default=10.0, ge=0)
    hang_after_s: float | None = None
    keep_on_fence: bool = False
    checkpoint: StoredCheckpoint | None = None
    copy_limit_bytes: int = Field(default=0, ge=0)
    keep: list[str] = []
    keep_limit_bytes: int = Field(default=0, ge=0)
    framework: FrameworkName | None = None
    shells: bool = False
    keep_failed_s: float = Field(default=0.0, ge=0)


class DesiredTask(AnswerSchema):
    """One task this node should run or stop. Tasks that are not listed must not run.

    `members` are all tasks of its gang in their order, once each has reported its address. It is
    empty if an agent of an earlier version, which reports none, runs one of them.
    """

    task_id: str
    workload_id: str
    epoch: int
    index: int
    action: Literal["start", "stop"]
    stop_reason: ReasonCode | None = None
    keep: bool = False
    rendezvous: Rendezvous | None = None
    members: list[GangMember] | None = None
    spec: TaskSpec | None = None


class ImagePush(AnswerSchema):
    """An image to build from the code `snapshot` within `resources`, and to push.

    `repository` has no tag: the image is known by its digest there.
    """

    snapshot: str
    resources: Resources
    repository: str


class BuildAheadRequest(AnswerSchema):
    """An environment to build for a project before a task needs it.

    Without `from_source` only wheels of indexes are installed, so that no code of the project runs.
    With `image` it is an image of a Dockerfile, which jobs in a pool run in.
    """

    id: str
    project: str
    digest: str
    from_source: bool = False
    image: ImagePush | None = None


class DesiredState(AnswerSchema):
    """Everything this node should run, as of `version`.

    `shells` are the tasks with open shells, `dashboards` those whose cluster's dashboard is open.
    """

    version: int
    tasks: list[DesiredTask]
    prewarm: list[ProgramName] = []
    file_requests: list[FileRequest] = []
    builds_ahead: list[BuildAheadRequest] = []
    shells: list[TaskKey] = []
    dashboards: list[TaskKey] = []


class RankEnd(AnswerSchema):
    """The exit of one rank. `detail` is the agent's diagnosis (last lines, limits, signals)."""

    rank: Rank
    exit_code: Status | None = None
    signal: Status | None = None


class SavedCheckpoint(AnswerSchema):
    """A complete checkpoint in its final place.

    `kept` are the steps of all checkpoints of the job that can be resumed from now, oldest first.
    The job's retention rule has removed all others that were reported before.
    """

    step: Count
    size_bytes: Count
    kept: list[Count] = Field(default=[], max_length=1000)


class ChosenStrategy(AnswerSchema):
    """The distribution strategy, as a word of `slipway.schemas.strategy`, and its reason."""

    word: Annotated[Line, Field(max_length=200)]
    reason: Annotated[Line, Field(max_length=2000)] = ""


class TaskReport(RequestSchema):
    """One step in the life of a task. `sequence` counts from 1 within (task, epoch).

    `at_unix_ms` is the node's clock at the time of the event. The portal maps it to its own time
    by `Reports.sent_unix_ms`. A task that was stopped by an order carries that order's
    `stop_reason` as its reason. One that ran to its end with status 0 carries `completed`.
    `ended` carries reason and detail. `failed` carries the same of a task that has failed and stays
    for shells, and its `ended` says in `kept_end` why it stays no longer. `progress` carries the
    latest step of a rank (the first one immediately), a checkpoint, once the strategy, at the end
    the files that were kept, or whether ranks here have connected to others. Only one that saw all
    connections says that none has.
    `rendezvous` carries the address of a task of a gang as its `member`, and the meeting point if
    it is task 0.
    """

    task_id: Id
    epoch: Epoch
    sequence: Whole = Field(ge=1, le=2**31 - 1)
    kind: Literal["starting", "rendezvous", "running", "progress", "failed", "ended"]
    at_unix_ms: Moment
    message: Annotated[Line, Field(max_length=2000)] = ""
    rendezvous: Rendezvous | None = None
    member: GangMember | None = None
    step: Count | None = None
    checkpoint: SavedCheckpoint | None = None
    strategy: ChosenStrategy | None = None
    ranks_connected: Truth | None = None
    files: FilesReport | None = None
    warm: Truth | None = None
    reason: ReasonCode | None = None
    exit_code: Status | None = None
    ranks: list[RankEnd] = Field(default=[], max_length=256)
    memory_peak_bytes: Count | None = None
    memory_limit_bytes: Count | None = None
    cpu_seconds: Number | None = Field(default=None, ge=0)
    log_tail: Annotated[str, Field(max_length=16_384)] = ""
    kept_end: Annotated[Line, Field(max_length=500)] = ""


class Reports(RequestSchema):
    """Reports in order. `sent_unix_ms` is the node's clock when this request was sent."""

    reports: list[TaskReport] = Field(max_length=500)
    sent_unix_ms: Moment | None = None


class ReportsAnswer(AnswerSchema):
    """`stale` lists tasks whose epoch has moved on. Kill them and stop reporting them."""

    accepted: int
    stale: list[TaskKey] = []


class EnvironmentSpec(AnswerSchema):
    """Specification of an environment, content-addressed by `digest`.

    `requirements` are the exact versions another node has built already, where one has. `secrets`
    are those secrets of the project that the accounts of package indexes name. With `dockerfile`,
    its text, it is an image instead, built for one project from the code of its task: from the
    folder `context` of the code, and of that only the files `copies`, None for all. With `conda`,
    packages of conda in their canonical form, `requirements` are what pip adds to them, and
    `conda_locked` are the exact packages that another node has installed.
    """

    digest: str
    requirements: str
    python: str
    secrets: dict[str, str] = {}
    dockerfile: str = ""
    context: str = ""
    copies: list[str] | None = None
    conda: str = ""
    conda_locked: str = ""


class EnvironmentReport(RequestSchema):
    """A piece of the build log (`log_offset` in bytes of UTF-8) and the state of the build.

    With `ready`, `locked` carries the exact versions of packages that came as wheels from indexes,
    so that every other node builds the same. `build` counts the builds of this environment for the
    `project` on this node from 1. Builds and their logs are never shared between projects.
    """

    project: Annotated[str, Field(max_length=128)] = ""
    build: Whole = Field(default=1, ge=1, le=2**31 - 1)
    state: Literal["building", "ready", "failed"]
    log_offset: Count
    log: Annotated[str, Field(max_length=65_536)] = ""
    size_bytes: Count | None = None
    locked: Annotated[str, Field(max_length=262_144)] = ""
    image: Annotated[Line, Field(max_length=500)] = ""
    image_python: Annotated[Line, Field(max_length=200)] = ""


class LogAnswer(AnswerSchema):
    """Size of the portal's copy of a log. Continue from `next_offset`."""

    next_offset: int


class Sample(AnswerSchema):
    """Resource usage of one task over the last interval."""

    task_id: Id
    epoch: Epoch
    at_unix_ms: Moment
    cpu_percent: Percent
    memory_bytes: Count
    gpu_percent: Percent | None = None
    gpu_memory_bytes: Count | None = None
    read_bytes: Count | None = None
    written_bytes: Count | None = None


class Samples(RequestSchema):
    samples: list[Sample] = Field(max_length=1000)
    sent_unix_ms: Moment | None = None
