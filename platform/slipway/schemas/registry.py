"""Wire schemas of registered models: versions, stages, gates, approvals, lineage.

Under `/api/v1/projects/{project}`:

GET    models                                   PageOf[ModelOut]; ?q=
POST   models                                   ModelIn → ModelOut (201)
GET    models/{model}                           ModelOut
PATCH  models/{model}                           ModelChange → ModelOut
GET    models/{model}/history                   PageOf[MoveOut]: every move, in one line
DELETE models/{model}/aliases/{alias}           → MoveOut
GET    models/{model}/versions                  PageOf[VersionOut]
POST   models/{model}/versions                  VersionIn → VersionOut (201); makes the model too
GET    models/{model}/versions/{version}        VersionDetail
PUT    models/{model}/versions/{version}/batching   BatchingIn → VersionDetail
PUT    models/{model}/versions/{version}/golden     GoldenIn → VersionDetail
GET    models/{model}/versions/{version}/golden     GoldenIn
POST   models/{model}/versions/{version}/evaluations  EvaluationIn → EvaluationOut (201)
GET    models/{model}/versions/{version}/plan   PlanOut; ?stage= or ?alias=
POST   models/{model}/versions/{version}/promote    PromoteIn → MoveOut (201)
POST   models/{model}/versions/{version}/requests   RequestIn → RequestOut (201)
GET    models/{model}/versions/{version}/requests   list[RequestOut]
POST   models/{model}/requests/{request}/decision   DecisionIn → RequestOut
GET    models/{model}/versions/{version}/lineage    LineageOut
GET    lineage                                  LineageOut; ?kind=&id=
GET    registry-rules                           RulesOut
PUT    registry-rules                           RulesIn → RulesOut

A version is the one an MLflow client sees: number, alias and tags are the same objects.
"""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from slipway.schemas.accounts import UserOut
from slipway.schemas.base import (
    AnswerSchema,
    JsonValue,
    Line,
    Number,
    RequestSchema,
    Text,
    Truth,
    Whole,
)
from slipway.schemas.batching import BatchingOut
from slipway.schemas.serving import BatchingMode, ModelFormat
from slipway.schemas.signatures import SignatureIn, SignatureOut

MAX_GOLDEN_ROWS = 200
DEFAULT_STAGES = ("Development", "Staging", "Production", "Archived")


def _clean_model_name(name: str) -> str:
    if name != name.strip() or name in (".", "..") or "/" in name or ":" in name:
        raise ValueError("has no slash, colon or space at its ends, and is not . or ..")
    return name


ModelName = Annotated[
    Line,
    AfterValidator(_clean_model_name),
    Field(min_length=1, max_length=100, json_schema_extra={"pattern": r"^[A-Za-z0-9_.-]+$"}),
]
AliasName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,98}$", max_length=99)]
StageName = Annotated[str, Field(pattern=r"^[A-Za-z0-9](?:[A-Za-z0-9 _-]{0,38}[A-Za-z0-9])?$")]
MetricName = Annotated[Line, Field(min_length=1, max_length=250)]
DatasetRef = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}:[1-9][0-9]{0,8}$")]
TagName = Annotated[Line, Field(min_length=1, max_length=250)]
TagValue = Annotated[Text, Field(max_length=5000)]
Tags = Annotated[dict[TagName, TagValue], Field(max_length=100)]
Reason = Annotated[Text, Field(min_length=3, max_length=2000)]
Note = Annotated[Text, Field(max_length=2000)]


class TargetKind(StrEnum):
    """Target of a promotion."""

    STAGE = "stage"
    ALIAS = "alias"


class GateKind(StrEnum):
    """Kinds of promotion gates."""

    SIGNATURE = "signature"
    GOLDEN = "golden"
    EVALUATION = "evaluation"
    APPROVAL = "approval"


class SignatureGate(RequestSchema):
    """The version must have a signature."""

    kind: Literal["signature"]


class GoldenGate(RequestSchema):
    """The version must have golden predictions."""

    kind: Literal["golden"]


class EvaluationGate(RequestSchema):
    """A job must have measured `metric` on `dataset`, at least as good as the current version.

    `margin` is the minimum improvement. A negative margin permits a worse value.
    """

    kind: Literal["evaluation"]
    metric: MetricName
    dataset: DatasetRef
    higher_is_better: Truth = True
    margin: Number = 0.0


class ApprovalGate(RequestSchema):
    """A maintainer who is not the author must approve."""

    kind: Literal["approval"]


Gate = Annotated[
    SignatureGate | GoldenGate | EvaluationGate | ApprovalGate, Field(discriminator="kind")
]


class TargetGates(RequestSchema):
    """Gates of a stage or an alias."""

    kind: TargetKind
    name: Annotated[str, Field(min_length=1, max_length=99)]
    gates: list[Gate] = Field(max_length=20)


class RulesIn(RequestSchema):
    """The stages of a project, in order, and its gates. `revision` is the one that was read."""

    stages: list[StageName] = Field(default=list(DEFAULT_STAGES), min_length=1, max_length=12)
    gates: list[TargetGates] = Field(default=[], max_length=50)
    revision: Whole = Field(ge=0, le=2**31 - 2)

    @model_validator(mode="after")
    def _consistent(self) -> "RulesIn":
        names = [name.lower() for name in self.stages]
        if len(set(names)) != len(names):
            raise ValueError("the same stage twice, apart from capitals")
        targets = [(gates.kind, gates.name.lower()) for gates in self.gates]
        if len(set(targets)) != len(targets):
            raise ValueError("gates of the same target twice")
        unknown = [
            gates.name
            for gates in self.gates
            if gates.kind is TargetKind.STAGE and gates.name not in self.stages
        ]
        if unknown:
            raise ValueError(f"gates of stages that are not there: {', '.join(unknown)}")
        return self


class RulesOut(AnswerSchema):
    """The current rules. `revision` counts their changes. Pass it with the next change."""

    stages: list[str]
    gates: list[TargetGates]
    revision: int


class ModelIn(RequestSchema):
    name: ModelName
    description: Note = ""
    tags: Tags = {}


class ModelChange(RequestSchema):
    """Changes to a model. `tags` sets the given tags, and null removes a tag."""

    card: Annotated[Text, Field(max_length=100_000)] | None = None
    description: Note | None = None
    tags: Annotated[dict[TagName, TagValue | None], Field(max_length=100)] | None = None


class ModelOut(AnswerSchema):
    """A registered model. `stages` holds the newest version in each stage that has one."""

    name: str
    description: str
    card: str
    tags: dict[str, str]
    aliases: dict[str, int]
    stages: dict[str, int]
    versions: int
    latest_version: int | None = None
    sequence: int
    created_at: datetime
    updated_at: datetime


class VersionIn(RequestSchema):
    """A version to register. `source` is `runs:/RUN/path`, `models:/…` or `mlflow-artifacts:/…`.

    It names a folder with an MLflow model, or with one model in TorchScript, torch.export or ONNX.
    For such a file `format` is the expected format, and `signature` its inputs and outputs, if the
    file does not declare them. An MLflow model declares both. `batching` is the batching mode of
    waiting requests. Without it they are merged only if golden rows prove that this is safe.
    """

    source: Annotated[Line, Field(min_length=6, max_length=500)]
    format: ModelFormat | None = None
    signature: SignatureIn | None = None
    batching: BatchingMode | None = None
    run_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None
    description: Note = ""
    tags: Tags = {}


class ModelFileOut(AnswerSchema):
    """A file of a version."""

    path: str
    size_bytes: int
    sha256: str


class ModelVersionOut(AnswerSchema):
    """A version of a model."""

    model: str
    version: int
    stage: str
    aliases: list[str]
    description: str
    tags: dict[str, str]
    source: str
    run_id: str | None = None
    author: UserOut | None = None
    created_at: datetime


class EvaluationOut(AnswerSchema):
    """A metric of a version on a dataset version.

    `is_verified` says that a job of this platform reported it. Gates ignore other metrics. `value`
    is null if the metric is not a finite number, and `note` contains its text.
    """

    id: str
    metric: str
    dataset: str
    value: float | None
    note: str = ""
    is_verified: bool
    workload: str | None = None
    run_id: str | None = None
    recorded_by: UserOut
    created_at: datetime


class GoldenFacts(AnswerSchema):
    """Summary of the golden predictions of a version."""

    rows: int
    sha256: str
    absolute_tolerance: float
    relative_tolerance: float
    created_at: datetime


class VersionDetail(ModelVersionOut):
    """A version with the contents of its files. `fault` says why they could not be read.

    `digest` covers all files. It and the digests of `files` are present if `are_files_known`.
    `format` selects the loader in a replica, null while its files could not be read.
    `evaluations` are the newest, and `evaluations_left_out` counts the others.
    """

    format: ModelFormat | None = None
    flavors: list[str]
    signature: SignatureOut | None = None
    example: str | None = None
    fault: str | None = None
    files: list[ModelFileOut]
    are_files_known: bool
    size_bytes: int
    digest: str | None = None
    golden: GoldenFacts | None = None
    batching: BatchingOut
    evaluations: list[EvaluationOut]
    evaluations_left_out: int = 0


class GoldenIn(RequestSchema):
    """Input rows with the outputs at registration, which a replica has to reproduce.

    A number is equal within `absolute_tolerance + relative_tolerance * |recorded|`.
    """

    inputs: list[JsonValue] = Field(min_length=1, max_length=MAX_GOLDEN_ROWS)
    outputs: list[JsonValue] = Field(min_length=1, max_length=MAX_GOLDEN_ROWS)
    absolute_tolerance: Number = Field(default=1e-6, ge=0, le=1e6)
    relative_tolerance: Number = Field(default=1e-5, ge=0, le=1)

    @model_validator(mode="after")
    def _paired(self) -> "GoldenIn":
        if len(self.inputs) != len(self.outputs):
            raise ValueError(
                f"{len(self.inputs)} inputs and {len(self.outputs)} outputs: one for each is needed"
            )
        return self


class EvaluationIn(RequestSchema):
    """A metric to record. Without `value`, the last value of `metric` in `run_id` is used.

    `not_finite` names a value that JSON cannot represent.
    """

    metric: MetricName
    dataset: DatasetRef
    value: Number | None = None
    not_finite: Literal["nan", "inf", "-inf"] | None = None
    run_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None

    @model_validator(mode="after")
    def _one_figure(self) -> "EvaluationIn":
        given = sum(part is not None for part in (self.value, self.not_finite, self.run_id))
        if given != 1:
            raise ValueError("exactly one of value, not_finite and run_id is needed")
        return self

    @property
    def figure(self) -> float | None:
        """The given value, including NaN and infinities. None if it comes from a run."""
        return float(self.not_finite) if self.not_finite is not None else self.value


class GateResult(AnswerSchema):
    """Result of one gate, with an explanation and the next step if it failed."""

    kind: GateKind
    passed: bool
    sentence: str
    next_step: str | None = None


class PlanOut(AnswerSchema):
    """Effect of a promotion, which `archives` versions. Pass `sequence` to promote exactly this."""

    model: str
    version: int
    kind: TargetKind
    target: str
    stage_now: str
    replaces: int | None = None
    archives: list[int] = []
    gates: list[GateResult]
    may_promote: bool
    sequence: int
    sentence: str


class TargetIn(RequestSchema):
    """Target of a promotion: either a stage or an alias."""

    stage: StageName | None = None
    alias: AliasName | None = None

    @model_validator(mode="after")
    def _one_target(self) -> "TargetIn":
        if (self.stage is None) == (self.alias is None):
            raise ValueError("exactly one of stage and alias is needed")
        return self

    @property
    def kind(self) -> TargetKind:
        """Kind of the target."""
        return TargetKind.STAGE if self.stage is not None else TargetKind.ALIAS

    @property
    def name(self) -> str:
        """Name of the target."""
        return self.stage or self.alias or ""


class PromoteIn(TargetIn):
    """A promotion. `sequence` is that of the plan.

    `override_reason` overrides failed gates. Only maintainers may, and the audit log records it.
    `archive_replaced` archives the versions in the stage, by default unless it is the first one.
    """

    sequence: Whole | None = Field(default=None, ge=0, le=2**31 - 1)
    override_reason: Reason | None = None
    archive_replaced: Truth | None = None


class MoveOut(AnswerSchema):
    """One promotion in the history of a model. `version` is null if an alias was removed."""

    id: str
    sequence: int
    kind: TargetKind
    target: str
    version: int | None
    replaced: int | None = None
    stage_before: str | None = None
    gates: list[GateResult]
    override_reason: str | None = None
    by: UserOut
    created_at: datetime


class RequestState(StrEnum):
    """State of a promotion request."""

    OPEN = "open"
    APPROVED = "approved"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    USED = "used"


class RequestIn(TargetIn):
    """A request for a maintainer's approval of a promotion."""

    note: Note = ""


class Verdict(StrEnum):
    """Decision about a promotion request. Only the requester may withdraw it."""

    APPROVE = "approve"
    REJECT = "reject"
    WITHDRAW = "withdraw"


class DecisionIn(RequestSchema):
    verdict: Verdict
    note: Note = ""


class RequestOut(AnswerSchema):
    """A promotion request and its decision."""

    id: str
    model: str
    version: int
    kind: TargetKind
    target: str
    state: RequestState
    note: str
    requested_by: UserOut
    decided_by: UserOut | None = None
    decision_note: str = ""
    created_at: datetime
    decided_at: datetime | None = None


class NodeKind(StrEnum):
    """Kinds of nodes in a lineage graph, from data to predictions."""

    DATASET = "dataset"
    JOB = "job"
    RUN = "run"
    VERSION = "version"
    ENDPOINT = "endpoint"
    PREDICTIONS = "predictions"
    BATCH_PREDICTION = "batch_prediction"


class LineageNode(AnswerSchema):
    """A node of a lineage graph. `key` is unique within the graph, `id` within its kind."""

    key: str
    kind: NodeKind
    id: str
    label: str
    detail: str = ""


class LineageEdge(AnswerSchema):
    """An edge from `source` to `target`, by their keys."""

    source: str
    target: str


class LineageOut(AnswerSchema):
    """Upstream and downstream lineage of an object. `left_out` counts nodes that are not listed."""

    nodes: list[LineageNode]
    edges: list[LineageEdge]
    left_out: int = 0


def spelled(value: float) -> str:
    """Format a number for people, with NaN and infinities by their names."""
    return f"{value:.6g}".replace("nan", "NaN").replace("inf", "infinity")
