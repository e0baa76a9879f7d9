"""Wire schemas of the data plane: between the portal, gateways and replicas.

Gateway (`python -m workers.gateway`), with its own token (`Authorization: Bearer …`):

GET  /api/gateway/v1/snapshot   GatewaySnapshot with an `ETag`; 304 for the same `If-None-Match`.
                                Polled every second. Complete and level-triggered: an endpoint that
                                is not in it is not served. It is stored on the gateway's disk
                                (mode 0600) and used from there while the portal is down.
POST /api/gateway/v1/reports    GatewayReport → 204, every two seconds. Counters count from the
                                start of the gateway process (`boot_id`), so a lost or repeated
                                report changes nothing: the portal keeps the newest by `sequence`.

Replica (`python -m workers.model_server`), a workload with its own short-lived token:

SLIPWAY_REPLICA                 the address of its ReplicaSpec, fetched with SLIPWAY_TOKEN, or the
                                path of a file with it, or the JSON itself
POST {report_url}               ReplicaReport → 204: loading → warming → ready | failed,
                                immediately at each change and every ten seconds.

The portal adds a replica to the snapshot when it has reported `ready` with its address. Readiness
means that golden predictions were reproduced, never an open port. To remove one: drop it from the
snapshot (the gateway finishes requests it sent there), then stop the workload. To roll back: move
the weight to the revision that is still warm. A key is never in a snapshot, only its SHA-256.

Times on the wire are Unix times. Durations and sizes carry their unit in the name.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from slipway.schemas.base import AnswerSchema, Digest, Line, Number, RequestSchema, Truth, Whole

Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_.:-]+$")]
Count = Annotated[Whole, Field(ge=0, le=2**53)]
Moment = Annotated[Whole, Field(ge=0, le=2**48)]
EndpointName = Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9-]{0,46}[a-z0-9])?$")]
Address = Annotated[str, Field(min_length=1, max_length=300)]

# Upper bounds in milliseconds of the latency histograms. One more bucket counts slower requests.
LATENCY_BOUNDS_MS = (
    *(0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 25.0, 50.0, 75.0, 100.0, 150.0, 250.0),
    *(500.0, 1000.0, 2500.0, 5000.0, 10000.0, 30000.0),
)


class Datatype(StrEnum):
    """Types of elements, by the names of the Open Inference Protocol. BYTES is text."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"


class FieldSpec(AnswerSchema):
    """One input, output or parameter: a tensor, or a column if its signature has columns.

    `shape` is that of a whole batch: -1 for any length, with rows as the first axis. Columns are
    `[-1]`. A column with `required` false may be omitted, and the model then sees missing values.
    """

    name: Annotated[Line, Field(max_length=500)]
    datatype: Datatype
    shape: Annotated[list[Whole], Field(max_length=16)] = [-1]
    required: Truth = True


class Signature(AnswerSchema):
    """Inputs and outputs of a model. `columns`: a table (pandas). `tensors`: named arrays.

    Without inputs nothing is validated before the model.
    """

    kind: Literal["columns", "tensors"] = "tensors"
    inputs: Annotated[list[FieldSpec], Field(max_length=10_000)] = []
    outputs: Annotated[list[FieldSpec], Field(max_length=10_000)] = []
    params: Annotated[list[FieldSpec], Field(max_length=1000)] = []


class ModelFormat(StrEnum):
    """Storage format of a model, which selects its loader in a replica."""

    MLFLOW = "mlflow"
    TORCHSCRIPT = "torchscript"
    TORCH_EXPORT = "torch_export"
    ONNX = "onnx"


class ModelFile(AnswerSchema):
    """A file of the model, fetched from `url` with the replica's token and checked by digest.

    `path` is relative to the model's folder and stays inside it. Without `url` the file has to be
    in `ReplicaSpec.model_dir` already, and its digest is checked there.
    """

    path: Annotated[Line, Field(min_length=1, max_length=1000)]
    sha256: Digest
    size_bytes: Count
    url: Annotated[str, Field(max_length=4000)] | None = None


class GoldenPrediction(AnswerSchema):
    """A request with a known response: `predictions` in the format of the scoring protocol.

    `request` is a body of `/invocations`. Numbers agree when they are within
    `atol + rtol * |expected|`. Everything else has to be equal.
    """

    request: dict[str, Any]
    predictions: Any
    rtol: float = Field(default=1e-4, ge=0, le=1)
    atol: float = Field(default=1e-6, ge=0)


class BatchingMode(StrEnum):
    """Batching modes of requests that wait at the same time.

    `rows`: their rows are merged into one call. `requests`: each is a call of its own. `off`: the
    same, and each is answered before the next one is read.
    """

    ROWS = "rows"
    REQUESTS = "requests"
    OFF = "off"


class Batching(AnswerSchema):
    """Batching of waiting requests. No request ever waits for others to arrive.

    `mode` is the choice of the version's author. Without it, requests are merged only if the golden
    rows prove that no row changes the output of another. `max_rows` limits a merged call.
    """

    max_rows: int = Field(default=64, ge=1, le=65_536)
    mode: BatchingMode | None = None


class BatchingVerdict(StrEnum):
    """The verdict of golden rows on merging: `proved`, `refuted` by an example, or `unproved`."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNPROVED = "unproved"


class BatchingReport(RequestSchema):
    """The batching mode of a replica and its reason.

    `alone_us` is the time of a single row, `merged_us` the time of each of `merged_rows` rows in
    one call. They are missing if nothing was measured.
    """

    mode: BatchingMode
    verdict: BatchingVerdict
    reason: Annotated[Line, Field(max_length=1000)]
    alone_us: Number | None = Field(default=None, ge=0)
    merged_us: Number | None = Field(default=None, ge=0)
    merged_rows: Annotated[Whole, Field(ge=1, le=65_536)] | None = None


class ReplicaSpec(AnswerSchema):
    """Configuration of a replica. `secret` authenticates gateways.

    `listen` is its address: `unix:/path` or `host:port`, with port 0 for any free port. The report
    contains the resulting address. `advertise_host` replaces the host there, for machines with a
    different external name. `entry` is the file of the model inside its folder. Formats that are a
    folder (mlflow) have none.
    """

    replica_id: Id
    endpoint_id: Id
    endpoint: EndpointName
    revision_id: Id
    model: Annotated[Line, Field(max_length=200)]
    model_version: Annotated[Line, Field(max_length=100)]
    format: ModelFormat
    model_dir: Annotated[str, Field(max_length=4000)]
    entry: Annotated[Line, Field(max_length=1000)] | None = None
    files: Annotated[list[ModelFile], Field(max_length=100_000)] = []
    signature: Signature | None = None
    golden: Annotated[list[GoldenPrediction], Field(max_length=100)] = []
    batching: Batching = Batching()
    listen: Address = "127.0.0.1:0"
    advertise_host: Annotated[Line, Field(max_length=253)] | None = None
    secret: Annotated[str, Field(min_length=16, max_length=200)]
    report_url: Annotated[str, Field(max_length=4000)] | None = None
    token: Annotated[str, Field(max_length=4000)] | None = None


class ReplicaState(StrEnum):
    """State of a replica. `ready`: every golden prediction was reproduced."""

    LOADING = "loading"
    WARMING = "warming"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class ReplicaReport(RequestSchema):
    """Report of a replica. `reason` says why it is not ready.

    `signature` is the signature of the model file, if the spec had none. `load_ms` and `warm_ms`
    are the durations of loading and warming, `forward_ms` that of a prediction of one row when
    warm. `batching` is the batching mode of a ready replica.
    """

    replica_id: Id
    revision_id: Id
    state: ReplicaState
    reason: Annotated[Line, Field(max_length=2000)] = ""
    address: Address | None = None
    signature: Signature | None = None
    load_ms: Number | None = Field(default=None, ge=0)
    warm_ms: Number | None = Field(default=None, ge=0)
    forward_ms: Number | None = Field(default=None, ge=0)
    batching: BatchingReport | None = None
    sent_unix_ms: Moment


# From the portal to the gateway


class ReplicaRoute(AnswerSchema):
    """A ready replica, its address, and the secret that gateways send."""

    id: Id
    address: Address
    secret: Annotated[str, Field(min_length=16, max_length=200)]


class RevisionRoute(AnswerSchema):
    """A revision with its share of the traffic.

    `weight` is relative to the other revisions of the endpoint. 0 keeps it connected and warm, so
    that moving traffic to it takes one snapshot. If a revision has no replica left, its share goes
    to the others. `is_standby` revisions had the traffic before. They are the fallback of an
    endpoint when no revision with a weight has a replica left.
    """

    id: Id
    model: Annotated[Line, Field(max_length=200)]
    model_version: Annotated[Line, Field(max_length=100)]
    weight: int = Field(default=0, ge=0, le=1_000_000)
    is_standby: Truth = False
    replicas: Annotated[list[ReplicaRoute], Field(max_length=1000)] = []
    signature: Signature | None = None


class Shadow(AnswerSchema):
    """A revision that receives mirrored requests. Its responses are never returned.

    `percent` of the answered predictions are mirrored. They are captured with `shadow` set and the
    id of the prediction they copy, and compared with its outputs (`RevisionCounters.differed`).
    """

    revision_id: Id
    percent: float = Field(default=100.0, ge=0, le=100)


class Rate(AnswerSchema):
    """A token bucket: requests per second, and at most `burst` at once.

    Each gateway process counts separately.
    """

    per_s: float = Field(gt=0, le=10_000_000)
    burst: int = Field(ge=1, le=10_000_000)


class KeyScope(StrEnum):
    """`predict`: predictions and everything in `read`. `read`: metadata, health, OpenAPI."""

    PREDICT = "predict"
    READ = "read"


class KeyRoute(AnswerSchema):
    """A key of one endpoint: the SHA-256 of its text, in hex. An expired key is refused.

    Revoking: leave it out of the next snapshot. While the portal is down an operator revokes by
    `python -m workers.gateway.revoke` on the gateway's host.
    """

    id: Id
    sha256: Digest
    scopes: list[KeyScope] = [KeyScope.PREDICT]
    expires_unix_s: Moment | None = None
    rate: Rate | None = None


class EndpointLimits(AnswerSchema):
    """Limits of an endpoint.

    A body above `max_body_bytes` gets 413, and a rate above `rate` 429. Waiting and running
    requests are bounded: above `max_in_flight`, or when the queue would take longer than
    `max_queue_ms` at the pace of the last second, the response is 503 with `Retry-After`. A request
    that took `timeout_s` gets 504.
    """

    max_body_bytes: int = Field(default=16 * 1024**2, ge=1, le=1024**3)
    max_in_flight: int = Field(default=1024, ge=1, le=100_000)
    max_queue_ms: float = Field(default=2_000.0, gt=0)
    timeout_s: float = Field(default=60.0, gt=0, le=3600)
    rate: Rate | None = None


class CaptureMode(StrEnum):
    """`on`: logged before the response is sent, and on disk at most 100 ms later.

    `strict`: on disk before the response is sent. `off`: predictions are not captured.
    """

    ON = "on"
    STRICT = "strict"
    OFF = "off"


class Fallback(StrEnum):
    """Response while no revision with traffic has a replica.

    `standby`: a warm earlier revision serves, and each response says so. `off`: 503 with
    `Retry-After`.
    """

    STANDBY = "standby"
    OFF = "off"


class EndpointRoute(AnswerSchema):
    """One endpoint. `name` is its part of URLs, unique in the installation.

    A `paused` endpoint answers 503 with the reason. Columns in `hidden` are dropped or hashed
    (HMAC-SHA256 under `hiding_key`) before predictions come into Parquet.
    """

    id: Id
    name: EndpointName
    project: Annotated[Line, Field(max_length=100)] = ""
    state: Literal["serving", "paused"] = "serving"
    reason: Annotated[Line, Field(max_length=2000)] = ""
    revisions: Annotated[list[RevisionRoute], Field(max_length=1000)] = []
    shadow: Shadow | None = None
    keys: Annotated[list[KeyRoute], Field(max_length=100_000)] = []
    limits: EndpointLimits = EndpointLimits()
    capture: CaptureMode = CaptureMode.ON
    fallback: Fallback = Fallback.STANDBY
    hidden: Annotated[dict[str, Literal["drop", "hash"]], Field(max_length=500)] = {}
    hiding_key: Annotated[str, Field(max_length=100)] = ""


class GatewaySnapshot(AnswerSchema):
    """The whole configuration of a gateway, as of `version`, which grows with every change."""

    version: Count
    endpoints: Annotated[list[EndpointRoute], Field(max_length=100_000)] = []


# From the gateway to the portal


class Histogram(AnswerSchema):
    """Latency histogram: `counts[i]` were at most `LATENCY_BOUNDS_MS[i]`, the last were slower.

    `sum_ms` is their sum.
    """

    counts: list[Count] = Field(min_length=len(LATENCY_BOUNDS_MS) + 1, max_length=64)
    sum_ms: Number = Field(ge=0)


class RevisionCounters(AnswerSchema):
    """Counters of requests routed to a revision since the gateway started.

    `answered`: 200. `refused`: client errors (4xx of the model server). `failed`: errors of the
    model or its replica (5xx), which count against a rollout. `retried`: sent to another replica
    because one died. `fallback`: those of all these that it served in place of the revisions with
    traffic. `captured` were written to the capture log, and `uncaptured` should have been.
    `mirrored`, `differed` and `shadow_failed` count the requests of a shadow, its differing outputs
    and its failures. `unmirrored` copies were omitted because it was too busy or had no replica.
    `in_flight` is the current number. `queue_ms_sum` is the time between arrival and forward pass.
    """

    revision_id: Id
    answered: Count = 0
    refused: Count = 0
    failed: Count = 0
    retried: Count = 0
    fallback: Count = 0
    captured: Count = 0
    uncaptured: Count = 0
    mirrored: Count = 0
    unmirrored: Count = 0
    differed: Count = 0
    shadow_failed: Count = 0
    in_flight: Count = 0
    queue_ms_sum: Number = 0.0
    latency: Histogram


class EndpointCounters(AnswerSchema):
    """Requests of an endpoint that reached no revision, by reason, and its revisions."""

    endpoint_id: Id
    unauthorized: Count = 0
    rate_limited: Count = 0
    too_large: Count = 0
    shed: Count = 0
    unavailable: Count = 0
    timed_out: Count = 0
    revisions: list[RevisionCounters] = Field(default=[], max_length=1000)


class ReplicaLink(AnswerSchema):
    """Connection of a gateway to a replica. `reason` says why it is not connected."""

    replica_id: Id
    state: Literal["connecting", "ready", "draining"]
    in_flight: Count = 0
    reason: Annotated[Line, Field(max_length=500)] = ""


class CaptureCounters(AnswerSchema):
    """Captured predictions: written to the log, dropped (disk full), not yet in Parquet."""

    written: Count = 0
    dropped: Count = 0
    waiting_bytes: Count = 0
    reason: Annotated[Line, Field(max_length=500)] = ""


class GatewayReport(RequestSchema):
    """State of one gateway process. `gateway` is its name, `boot_id` new with every start."""

    gateway: Id
    boot_id: Id
    sequence: Count
    snapshot_version: Count
    sent_unix_ms: Moment
    endpoints: list[EndpointCounters] = Field(default=[], max_length=100_000)
    replicas: list[ReplicaLink] = Field(default=[], max_length=100_000)
    capture: CaptureCounters = CaptureCounters()
