"""Wire schemas of workloads: state, reason, tasks and outcome."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field
from pydantic.config import JsonDict

from slipway.schemas.accounts import NetworkRule
from slipway.schemas.base import (
    LINE_PATTERN,
    AnswerSchema,
    Line,
    Name,
    Number,
    PartSchema,
    PythonVersion,
    RequestSchema,
    Slug,
    Truth,
    Whole,
)


class WorkloadState(StrEnum):
    """State of a workload. The last four are final."""

    SUBMITTED = "submitted"
    ADMITTED = "admitted"
    QUEUED = "queued"
    PLACED = "placed"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    LOST = "lost"

    @property
    def is_final(self) -> bool:
        """Return whether the workload has ended."""
        return self in (self.SUCCEEDED, self.FAILED, self.STOPPED, self.LOST)


class ReasonCode(StrEnum):
    """Reasons why a workload ended, stopped or was requeued."""

    COMPLETED = "completed"
    EXIT = "exit"
    SIGNAL = "signal"
    OUT_OF_MEMORY = "oom"
    OUT_OF_GPU_MEMORY = "gpu_oom"
    IMPORT_ERROR = "import_error"
    HANG = "hang"
    WORLD_SIZE = "world_size"
    DISK_FULL = "disk_full"
    START_FAILED = "start_failed"
    ENVIRONMENT_FAILED = "environment_failed"
    NODE_LOST = "node_lost"
    FENCED = "fenced"
    USER = "user"
    BUDGET = "budget"
    IDLE = "idle"
    MAX_LIFETIME = "max_lifetime"
    PREEMPTED = "preempted"
    PEER_FAILED = "peer_failed"
    EARLY_STOP = "early_stop"


class Resources(PartSchema):
    """Resources of a task or a node: thousandths of a CPU, bytes, whole GPUs."""

    cpu_millis: Whole = Field(ge=0, le=10_000_000)
    memory_bytes: Whole = Field(ge=0, le=2**50)
    gpus: Whole = Field(default=0, ge=0, le=1024)


LabelKey = Annotated[Line, Field(min_length=1, max_length=63)]
LabelValue = Annotated[Line, Field(max_length=63)]
# The rule for keys again, for the OpenAPI description, where pydantic omits it.
_KEYS: JsonDict = {"propertyNames": {"minLength": 1, "maxLength": 63, "pattern": LINE_PATTERN}}
Labels = Annotated[dict[LabelKey, LabelValue], Field(max_length=64, json_schema_extra=_KEYS)]
NanoUsd = Annotated[Whole, Field(ge=0, le=10**15)]
# Discount of preemptible work, in percent of the price of its tier.
DEFAULT_DISCOUNT = 50
MOST_DISCOUNT = 90
Discount = Annotated[Whole, Field(ge=0, le=MOST_DISCOUNT)]


class TierOut(AnswerSchema):
    """A hardware tier: the resources of one task and the price per hour in nano-USD.

    `labels` are required of nodes. `free_tasks` says how many tasks of this tier fit right now.
    `preemptible_discount` is how much less preemptible jobs cost, in percent, and
    `preemptible_nano_usd_per_hour` what they cost then.
    """

    id: str
    slug: str
    name: str
    resources: Resources
    gpu_model: str = ""
    labels: dict[str, str] = {}
    nano_usd_per_hour: int
    preemptible_discount: int = DEFAULT_DISCOUNT
    preemptible_nano_usd_per_hour: int = 0
    is_active: bool
    free_tasks: int | None = None


class TierIn(RequestSchema):
    name: Name
    slug: Slug
    resources: Resources
    gpu_model: Annotated[Line, Field(max_length=64)] = ""
    labels: Labels = {}
    nano_usd_per_hour: NanoUsd
    preemptible_discount: Discount = DEFAULT_DISCOUNT


class TierChange(RequestSchema):
    """Changes to a tier. Resources never change, so create another tier instead.

    A new `preemptible_discount` applies to attempts that start from now on.
    """

    name: Name | None = None
    is_active: Truth | None = None
    nano_usd_per_hour: NanoUsd | None = None
    preemptible_discount: Discount | None = None


class TierPriceOut(AnswerSchema):
    """A price and the time from which it applies. Prices are only ever added."""

    nano_usd_per_hour: int
    effective_from: datetime


class NodeIsolation(AnswerSchema):
    """Isolation between tasks of different projects in one back end of a node.

    `level` is `namespaces`, `users`, `containers` or `shared`, and `meaning` explains it in plain
    words. `detail` says why no stronger level is available there.
    """

    backend: str
    level: str
    features: list[str] = []
    meaning: str
    detail: str = ""


class NodeDisk(AnswerSchema):
    """The disk for the folders of a node's tasks.

    A task that uses more than `task_bytes` ends with the reason `disk_full`. Below `reserve_bytes`
    of free space, the node stops the task that grew most.
    """

    capacity_bytes: int
    task_bytes: int
    reserve_bytes: int
    free_bytes: int | None = None


class NodeOut(AnswerSchema):
    """A machine of the installation. `reason` says why it accepts no new work, if that is so.

    `pythons` are the versions of Python that environments can be built with. A back end with the
    isolation `shared` runs one project at a time, unless `mixes_projects`.
    """

    id: str
    name: str
    state: str
    reason: str = ""
    backends: list[str]
    capacity: Resources
    free: Resources
    labels: dict[str, str]
    pythons: list[str] = []
    gpu_models: list[str] = []
    isolation: list[NodeIsolation] = []
    mixes_projects: bool = False
    disk: NodeDisk | None = None
    tasks: int = 0
    agent_version: str = ""
    cpu_percent: float | None = None
    memory_used_bytes: int | None = None
    last_seen_at: datetime | None = None


class NodeChange(RequestSchema):
    """Settings of a node.

    `mixes_projects` permits several projects at a time without isolation between them: code
    of one project can then read files, memory and secrets of the others that run there.
    """

    mixes_projects: Truth | None = None


class NodeReason(RequestSchema):
    """Reason for cordoning or draining a node, shown to users whose work waits for it."""

    reason: Annotated[Line, Field(max_length=200)] = ""


class JoinTokenIn(RequestSchema):
    """A one-time token for one machine to join. `node` binds it to a name.

    A token bound to the name of an existing node lets the machine join again in its place.
    """

    node: Slug | None = None
    expires_in_minutes: Whole = Field(default=60, ge=1, le=7 * 24 * 60)


class JoinTokenCreated(AnswerSchema):
    """A new join token, which only this response contains."""

    join_token: str = Field(repr=False)
    command: str = Field(repr=False)
    expires_at: datetime


class QuotaIn(RequestSchema):
    """Concurrent resources of a project or team (null: no limit), and its fair-share weight."""

    cpu_millis: Whole | None = Field(default=None, ge=0, le=10**9)
    gpus: Whole | None = Field(default=None, ge=0, le=10**6)
    running: Whole | None = Field(default=None, ge=0, le=10**6)
    weight: Number = Field(default=1.0, ge=0.01, le=1000)


class QuotaOut(AnswerSchema):
    """A quota. `used_*` is the current usage."""

    cpu_millis: int | None = None
    gpus: int | None = None
    running: int | None = None
    weight: float = 1.0
    used_cpu_millis: int = 0
    used_gpus: int = 0
    used_running: int = 0


class PreemptionOut(AnswerSchema):
    """A move of a preemptible workload: `attempt` was stopped `at` a time for another workload.

    `moved_for` is the id of that workload, and `project` that of its project (a slug). Both are
    null if you may not see it. `sentence` says the same in words.
    """

    at: datetime
    attempt: int
    moved_for: str | None = None
    project: str | None = None
    sentence: str


class WorkloadEventOut(AnswerSchema):
    """An event of a workload."""

    at: datetime
    attempt: int
    kind: str
    message: str


class WorkloadOut(AnswerSchema):
    """A workload. `explanation` says why it waits, runs or ended.

    `network` is its network access. `parent` is the id of the workload that it is a part of.
    `preemptions` is how often a `preemptible` one was moved for another workload.
    `nano_usd_per_hour` is what all its tasks cost if they start now, and `full_nano_usd_per_hour`
    that without the discount of preemptible work.
    `kept_until` is set while it is `running` although it has failed: its task stays until then, so
    that its submitter can open a shell in it.
    """

    id: str
    project: str
    parent: str | None = None
    kind: str
    name: str
    state: WorkloadState
    explanation: str
    reason: ReasonCode | None = None
    next_step: str | None = None
    tier: str
    nodes: int
    procs: int
    attempt: int
    priority: int
    preemptible: bool = False
    preemptions: int = 0
    queue_position: int | None = None
    exit_code: int | None = None
    environment: str | None = None
    network: NetworkRule = "open"
    nano_usd_per_hour: int = 0
    full_nano_usd_per_hour: int = 0
    submitted_by: str
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    kept_until: datetime | None = None

    @property
    def outcome(self) -> WorkloadState:
        """The final state, as far as it is known: `failed` while a failed task is kept."""
        return WorkloadState.FAILED if self.kept_until is not None else self.state

    @property
    def has_outcome(self) -> bool:
        """Return whether the workload has ended, or has failed and is kept."""
        return self.outcome.is_final


class RankLogOut(AnswerSchema):
    """The log of one rank of one attempt. Fetch it by `attempt` and `rank`."""

    attempt: int
    rank: int
    size_bytes: int
    is_complete: bool


class TaskOut(AnswerSchema):
    """One task of the current attempt: its node and its exit."""

    index: int
    node: str | None = None
    state: str
    reason: ReasonCode | None = None
    exit_code: int | None = None
    step: int | None = None
    memory_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None


class WorkloadDetailOut(WorkloadOut):
    """A workload with its tasks, its newest events and its logs.

    `events_left_out` counts older events, which the list of events contains. `tasks_without_logs`
    counts tasks of earlier attempts whose logs are not in `logs`. Each log can be read by attempt
    and rank. `moves` are its preemptions, the newest first, at most 20.
    """

    tasks: list[TaskOut] = []
    moves: list[PreemptionOut] = []
    events: list[WorkloadEventOut] = []
    events_left_out: int = 0
    logs: list[RankLogOut] = []
    tasks_without_logs: int = 0
    log_tail: str = ""


class WorkloadStop(RequestSchema):
    """Stop a workload. `message` is shown on its page."""

    message: Annotated[Line, Field(max_length=200)] = ""


class EnvironmentIn(RequestSchema):
    """Requirements (the text of a `requirements.txt`) to build an environment from."""

    requirements: Annotated[str, Field(max_length=65_536)]
    python: PythonVersion | None = None


class BuildOut(AnswerSchema):
    """Build of an environment on one node."""

    node: str
    state: str
    size_bytes: int | None = None
    log_bytes: int = 0
    changed_at: datetime


class EnvironmentOut(AnswerSchema):
    """A content-addressed environment: same requirements, same `digest`.

    With `dockerfile`, its text, it is an image that is built from it, with a Python of its own.
    With `conda`, it is built from packages of conda, and `requirements` are those of pip beside
    them. `python` is empty if only the packages decide it.
    """

    digest: str
    python: str
    requirements: str
    dockerfile: str = ""
    conda: str = ""
    locked: str = ""
    created_at: datetime
    builds: list[BuildOut] = []
