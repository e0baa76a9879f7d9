"""Wire schemas of endpoints for people. `schemas.serving` has those of gateways and replicas."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from slipway.schemas.base import (
    AnswerSchema,
    JsonObject,
    Line,
    Name,
    Number,
    RequestSchema,
    Slug,
    Truth,
    Whole,
)
from slipway.schemas.environments import EnvironmentReference

ModelName = Annotated[Line, Field(min_length=1, max_length=200)]
ModelVersion = Annotated[Line, Field(min_length=1, max_length=100)]
Percent = Annotated[Whole, Field(ge=1, le=100)]


class PlanKind(StrEnum):
    """Rollout strategy of a new revision.

    `all_at_once` moves all traffic. `canary` moves a growing share. `shadow` mirrors requests and
    compares the predictions, without returning them, until somebody promotes the revision.
    """

    ALL_AT_ONCE = "all_at_once"
    CANARY = "canary"
    SHADOW = "shadow"


class Plan(RequestSchema):
    """Rollout plan. Each step lasts `bake_s` seconds, and a failure rolls all traffic back.

    `percents` are the increasing steps of a canary, by default 1, 10, 50 and 100.
    """

    kind: PlanKind = PlanKind.ALL_AT_ONCE
    percents: Annotated[list[Percent], Field(max_length=20)] = []
    bake_s: Number = Field(default=60.0, ge=0, le=7 * 86_400)
    shadow_percent: Number = Field(default=100.0, gt=0, le=100)

    @model_validator(mode="after")
    def _growing(self) -> Self:
        if self.percents and self.kind != PlanKind.CANARY:
            raise ValueError("percents: only a canary has steps")
        if any(
            after <= before for before, after in zip(self.percents, self.percents[1:], strict=False)
        ):
            raise ValueError("percents: each step must be greater than the one before")
        return self


class RollbackRules(RequestSchema):
    """Conditions of an automatic rollback. Null disables one rule, `is_on` all of them.

    `max_latency_factor` compares the p99 latency with that of the previous revision.
    """

    is_on: Truth = True
    max_error_percent: Number | None = Field(default=2.0, ge=0, le=100)
    max_p99_ms: Number | None = Field(default=None, gt=0, le=3_600_000)
    max_latency_factor: Number | None = Field(default=3.0, ge=1, le=1000)


class RequestRate(RequestSchema):
    """Maximum requests per second, and the `burst` that may arrive at once."""

    per_s: Number = Field(gt=0, le=10_000_000)
    burst: Whole = Field(ge=1, le=10_000_000)


class LimitsIn(RequestSchema):
    """Limits of gateways: size, time, concurrency and rate of requests."""

    max_body_bytes: Whole = Field(default=16 * 1024**2, ge=1, le=1024**3)
    max_in_flight: Whole = Field(default=1024, ge=1, le=100_000)
    max_queue_ms: Number = Field(default=2000.0, gt=0, le=3_600_000)
    timeout_s: Number = Field(default=60.0, gt=0, le=3600)
    rate: RequestRate | None = None


EndpointStateName = Literal["creating", "serving", "paused", "failed", "deleting"]
CaptureWord = Literal["on", "strict", "off"]
FallbackWord = Literal["standby", "off"]
Replicas = Annotated[Whole, Field(ge=1, le=1000)]


class EndpointIn(RequestSchema):
    """A new endpoint. `version` is a number or an alias, by default the latest version.

    `tier` defaults to the cheapest. More replicas start when each has more than
    `target_concurrency` requests in progress, or requests wait longer than `target_queue_ms`.
    The replicas of a replaced revision stay for `warm_minutes`, so that a rollback takes less than
    a second. They cost as much as before, and are stopped when other work waits for their place.
    `fallback` decides what responds while no revision with traffic has a replica: such a `standby`,
    each response marked with `x-slipway-fallback`, or nothing (`off`: 503 with Retry-After).
    The first revision uses `all_at_once`, because a canary and a shadow need a serving revision.
    `environment` is a named environment of the project (`vision`, or `vision@3` for one version),
    in place of the packages that came with the model. In a `pool` another scheduler allocates a
    node for each replica, and gateways reach it through the relay. It is chosen for good.
    """

    name: Slug
    model: ModelName
    version: ModelVersion | None = None
    environment: EnvironmentReference | None = None
    tier: Slug | None = None
    pool: Slug | None = None
    min_replicas: Replicas = 1
    max_replicas: Replicas | None = None
    target_concurrency: Whole = Field(default=64, ge=1, le=100_000)
    target_queue_ms: Number = Field(default=100.0, gt=0, le=3_600_000)
    warm_minutes: Whole = Field(default=15, ge=0, le=1440)
    fallback: FallbackWord = "standby"
    limits: LimitsIn = LimitsIn()
    rules: RollbackRules = RollbackRules()
    capture: CaptureWord = "on"
    plan: Plan = Plan(bake_s=0)


class EndpointChange(RequestSchema):
    """Changes to an endpoint. Omitted fields stay unchanged, also within limits and rules.

    Null removes a value, such as a rollback rule or the rate.
    """

    min_replicas: Replicas | None = None
    max_replicas: Replicas | None = None
    target_concurrency: Whole | None = Field(default=None, ge=1, le=100_000)
    target_queue_ms: Number | None = Field(default=None, gt=0, le=3_600_000)
    warm_minutes: Whole | None = Field(default=None, ge=0, le=1440)
    fallback: FallbackWord | None = None
    limits: LimitsIn | None = None
    rules: RollbackRules | None = None
    capture: CaptureWord | None = None


class Promote(RequestSchema):
    """The version to serve: of a model, or that of an earlier `revision`.

    While no revision serves, the only plan is `all_at_once`. `environment` is a named environment
    of the project, in place of the packages that came with the model.
    """

    model: ModelName | None = None
    version: ModelVersion | None = None
    environment: EnvironmentReference | None = None
    revision: Whole | None = Field(default=None, ge=1, le=2**31 - 1)
    plan: Plan = Plan()


class Reason(RequestSchema):
    """Reason for an action, recorded in the events of the endpoint."""

    reason: Annotated[Line, Field(max_length=500)] = ""


class RevisionOut(AnswerSchema):
    """A revision. `weight` is its share of the traffic in percent.

    While the endpoint is paused, `state` is `paused` for revisions that get traffic after it.

    `answered_as_standby` counts requests it served in place of revisions with traffic,
    `uncaptured` those that should have been captured and were not, and `unmirrored` copies that
    were not sent to a shadow. `environment_version` is the version of a named environment that it
    is served in, null for the packages of the model.
    """

    number: int
    model: str
    version: str
    environment_version: str | None = None
    state: str
    reason: str = ""
    weight: int
    replicas_ready: int
    desired_replicas: int
    answered: int
    failed: int
    answered_as_standby: int = 0
    captured: int = 0
    uncaptured: int = 0
    mirrored: int = 0
    unmirrored: int = 0
    differed: int = 0
    made_by: str
    created_at: datetime
    ready_at: datetime | None = None


class RolloutOut(AnswerSchema):
    """A rollout. `step` counts from 1, and `step_since` is the start of the current step."""

    id: str
    revision: int
    previous: int | None = None
    plan: PlanKind
    percents: list[int]
    state: str
    step: int
    step_since: datetime | None = None
    next_step_at: datetime | None = None
    reason: str = ""
    made_by: str
    created_at: datetime
    ended_at: datetime | None = None


class ReplicaOut(AnswerSchema):
    """A replica, with the reason for its state.

    The state `unreachable` means that no gateway has a connection to a replica in a pool.
    """

    id: str
    revision: int
    workload: str | None = None
    state: str
    reason: str = ""
    node: str | None = None
    load_ms: float | None = None
    warm_ms: float | None = None
    forward_ms: float | None = None
    created_at: datetime
    ready_at: datetime | None = None


class IncidentOut(AnswerSchema):
    """A period in which predictions were not captured, or a standby served them.

    `predictions` is their number. `ended_at` is missing while the incident continues.
    """

    kind: Literal["uncaptured", "fallback"]
    message: str
    revision: int
    predictions: int
    began_at: datetime
    last_at: datetime
    ended_at: datetime | None = None


class EndpointOut(AnswerSchema):
    """An endpoint. `url` is its address at the gateway, `rollout` the current rollout.

    `missing_replicas_reason` explains that the load needs more replicas than the maximum.
    Monitoring has `captured` of `captured` + `uncaptured` predictions. `incidents` are the newest
    of the last hour, and `incidents_left_out` counts the others. `revisions` are the newest and the
    warm ones, and `revisions_left_out` counts the others. `pool` is where another scheduler
    allocates the nodes of its replicas, null for the nodes of the installation.
    """

    id: str
    name: str
    project: str
    state: str
    reason: str = ""
    url: str
    tier: str
    pool: str | None = None
    min_replicas: int
    max_replicas: int
    desired_replicas: int
    replicas_ready: int
    missing_replicas_reason: str = ""
    target_concurrency: int
    target_queue_ms: float
    warm_minutes: int
    fallback: str
    captured: int = 0
    uncaptured: int = 0
    incidents: list[IncidentOut] = []
    incidents_left_out: int = 0
    nano_usd_per_hour: int
    capture: str
    limits: LimitsIn
    rules: RollbackRules
    revisions: list[RevisionOut] = []
    revisions_left_out: int = 0
    rollout: RolloutOut | None = None
    made_by: str
    created_at: datetime


class EndpointEventOut(AnswerSchema):
    """An event of an endpoint."""

    at: datetime
    kind: str
    message: str


class EndpointKeyIn(RequestSchema):
    """A new key. `predict` permits predictions and everything in `read`: metadata and health."""

    name: Name
    scopes: Annotated[list[Literal["predict", "read"]], Field(min_length=1, max_length=2)] = [
        "predict"
    ]
    expires_in_days: Whole | None = Field(default=None, ge=1, le=3650)
    rate: RequestRate | None = None


class EndpointKeyOut(AnswerSchema):
    """A key without its text. `prefix` is its beginning, to identify it."""

    id: str
    name: str
    prefix: str
    scopes: list[str]
    rate: RequestRate | None = None
    made_by: str
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None


class EndpointKeyCreated(EndpointKeyOut):
    """A new key with its text, which only this response contains."""

    key: str = Field(repr=False)


class TrafficPoint(AnswerSchema):
    """One minute of traffic: requests per second, latency in milliseconds, errors.

    `fallback` counts requests served by a standby. `captured` and `uncaptured` count the
    predictions that monitoring has and lacks.
    """

    at: datetime
    rps: float
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    answered: int = 0
    refused: int = 0
    failed: int = 0
    rejected: int = 0
    unauthorized: int = 0
    fallback: int = 0
    captured: int = 0
    uncaptured: int = 0


class TryIn(RequestSchema):
    """A test request. `request` is a body of `/invocations`."""

    request: JsonObject


class TryOut(AnswerSchema):
    """Response of the endpoint, through its gateway."""

    status: int
    latency_ms: float
    answer: Any = None
