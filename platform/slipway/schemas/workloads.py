"""Workloads on the wire: what runs, where it stands, why, and how it ended."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from slipway.schemas.base import AnswerSchema, Line, Name, RequestSchema, Slug


class WorkloadState(StrEnum):
    """Where a workload stands; the last four are final."""

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
        """Whether the workload has ended."""
        return self in (self.SUCCEEDED, self.FAILED, self.STOPPED, self.LOST)


class ReasonCode(StrEnum):
    """Why a workload ended, stopped or was put back into the queue."""

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


class Resources(AnswerSchema):
    """What one task needs, or a node offers. Thousandths of a CPU, bytes, whole GPUs."""

    cpu_millis: int = Field(ge=0)
    memory_bytes: int = Field(ge=0)
    gpus: int = Field(default=0, ge=0)


class TierOut(AnswerSchema):
    """A hardware tier: what one task gets and what an hour of it costs, in nano-USD."""

    id: str
    slug: str
    name: str
    resources: Resources
    gpu_model: str = ""
    nano_usd_per_hour: int
    is_active: bool


class TierIn(RequestSchema):
    name: Name
    slug: Slug
    resources: Resources
    gpu_model: Annotated[Line, Field(max_length=64)] = ""
    nano_usd_per_hour: int = Field(ge=0, le=10**15)


class NodeOut(AnswerSchema):
    """A machine of the installation. `reason` says why it takes no new work, if it does not."""

    id: str
    name: str
    state: str
    reason: str = ""
    backends: list[str]
    capacity: Resources
    free: Resources
    labels: dict[str, str]
    gpu_models: list[str] = []
    cpu_percent: float | None = None
    memory_used_bytes: int | None = None
    last_seen_at: datetime | None = None


class WorkloadEventOut(AnswerSchema):
    """One line of a workload's story."""

    at: datetime
    attempt: int
    kind: str
    message: str


class WorkloadOut(AnswerSchema):
    """A workload. `explanation` is the sentence a person reads: why it waits, runs or ended."""

    id: str
    project: str
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
    queue_position: int | None = None
    submitted_by: str
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
