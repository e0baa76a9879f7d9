"""Captured predictions, drift, quality and alerts, as people ask for and see them."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, Strict, StrictBool, StrictFloat, StrictInt, model_validator

from slipway.schemas.base import AnswerSchema, Line, Number, RequestSchema, Truth, Whole
from slipway.schemas.dates import Moment
from slipway.schemas.quality import ModelTaskOut, QualityPoint

LABELS_AT_ONCE = 10_000
PREDICTION_PATTERN = r"^prd_[0-9A-HJKMNP-TV-Z]{26}$"
PredictionId = Annotated[str, Field(pattern=PREDICTION_PATTERN)]
OwnId = Annotated[Line, Field(min_length=1, max_length=200)]
FeatureName = Annotated[Line, Field(min_length=1, max_length=250)]
Mail = Annotated[Line, Field(min_length=3, max_length=254, pattern=r"^[^@\s]+@[^@\s]+$")]
PredictionStatus = Annotated[str, Field(pattern=r"^(answered|failed|any|[45][0-9]{2})$")]
_LabelText = Annotated[Line, Strict(), Field(max_length=200)]
LabelValue = Annotated[
    StrictBool
    | StrictInt
    | StrictFloat
    | _LabelText
    | Annotated[list[_LabelText], Field(max_length=1000)],
    Field(
        description="A class, a number, true or false, or the list of labels of a multi-label "
        "task. Empty text is skipped."
    ),
]


class ModelTask(StrEnum):
    """Tasks of models, which decide how predictions are compared with labels.

    `probability`: the output is the probability that the label is true. `ranking`: the rows of a
    request are ranked by their output, and a label is the relevance of a row. `multi_label`: a
    label is a list, and outputs are named by labels (0 or 1, or probabilities). `forecast`: a
    regression with errors in relation to the truth.
    """

    CLASSIFICATION = "classification"
    PROBABILITY = "probability"
    REGRESSION = "regression"
    FORECAST = "forecast"
    RANKING = "ranking"
    MULTI_LABEL = "multi_label"


class LabelType(StrEnum):
    """Types of labels, by which they are compared: `boolean` has true = 1 = "1" = "true"."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"


class Hiding(StrEnum):
    """What becomes of a column at capture, before anything of it is kept."""

    DROP = "drop"
    HASH = "hash"


class MonitorSettings(RequestSchema):
    """How an endpoint is watched.

    A window is full with `window_rows` predictions that took `window_at_least_s` seconds, or with
    200 after `window_at_most_s`. A feature is different in a window when that is significant (below
    `alpha`, after Benjamini-Hochberg over all features) **and** large: `share` of the values would
    have to move, or they moved by `shift_sd` standard deviations on average, or the share of
    missing values changed by `missing`. Two windows in a row raise an alert.

    `min_accuracy` and `max_mean_error` raise one on measured quality; without them it is raised
    where the measured accuracy lies below the range of its estimate. `max_error_percent` and
    `max_p95_ms` look at the last 15 minutes. `watch_drift` and `watch_outputs` switch alerts on
    inputs and outputs. `hidden` are columns that are hashed or dropped at capture. `positive` is
    the class that is looked for, where there are two. Captured predictions go after `keep_days`.

    `task` and `label_type` are inferred unless they are declared; another one has quality measured
    again.
    """

    window_rows: Whole = Field(default=1000, ge=200, le=1_000_000)
    window_at_least_s: Number = Field(default=300.0, ge=0, le=86_400)
    window_at_most_s: Number = Field(default=3600.0, ge=1, le=2_592_000)
    alpha: Number = Field(default=0.01, gt=0, le=0.2)
    share: Number = Field(default=0.1, gt=0, le=1)
    shift_sd: Number = Field(default=0.2, gt=0, le=100)
    missing: Number = Field(default=0.05, gt=0, le=1)
    watch_drift: Truth = True
    watch_outputs: Truth = True
    watch_quality: Truth = True
    min_accuracy: Number | None = Field(default=None, ge=0, le=1)
    max_mean_error: Number | None = Field(default=None, ge=0, le=1e300)
    max_error_percent: Number | None = Field(default=5.0, gt=0, le=100)
    max_p95_ms: Number | None = Field(default=None, gt=0, le=1e9)
    positive: Annotated[Line, Field(max_length=200)] | None = None
    hidden: dict[FeatureName, Hiding] = Field(default={}, max_length=500)
    keep_days: Whole = Field(default=90, ge=1, le=3650)
    task: ModelTask | None = None
    label_type: LabelType | None = None


class MonitorSettingsOut(MonitorSettings, AnswerSchema):
    """The same as an answer: settings that this client does not know yet are ignored."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class MonitorChange(RequestSchema):
    """What changes about watching an endpoint; what is left out stays."""

    window_rows: Whole | None = Field(default=None, ge=200, le=1_000_000)
    window_at_least_s: Number | None = Field(default=None, ge=0, le=86_400)
    window_at_most_s: Number | None = Field(default=None, ge=1, le=2_592_000)
    alpha: Number | None = Field(default=None, gt=0, le=0.2)
    share: Number | None = Field(default=None, gt=0, le=1)
    shift_sd: Number | None = Field(default=None, gt=0, le=100)
    missing: Number | None = Field(default=None, gt=0, le=1)
    watch_drift: Truth | None = None
    watch_outputs: Truth | None = None
    watch_quality: Truth | None = None
    min_accuracy: Number | None = Field(default=None, ge=0, le=1)
    max_mean_error: Number | None = Field(default=None, ge=0, le=1e300)
    max_error_percent: Number | None = Field(default=None, gt=0, le=100)
    max_p95_ms: Number | None = Field(default=None, gt=0, le=1e9)
    positive: Annotated[Line, Field(max_length=200)] | None = None
    hidden: dict[FeatureName, Hiding] | None = Field(default=None, max_length=500)
    keep_days: Whole | None = Field(default=None, ge=1, le=3650)
    task: ModelTask | None = None
    label_type: LabelType | None = None


class LabelIn(RequestSchema):
    """What turned out to be true of a prediction: named by its id, or by the client's own.

    The client's own is the `client_request_id` it sent in the body (`id` in the Open Inference
    Protocol). `row` is the place in a request of several rows.
    """

    prediction_id: PredictionId | None = None
    own_id: OwnId | None = None
    row: Whole = Field(default=0, ge=0, le=1_000_000)
    value: LabelValue

    @model_validator(mode="after")
    def _names_one(self) -> Self:
        if (self.prediction_id is None) == (self.own_id is None):
            raise ValueError("name either prediction_id or own_id")
        return self


class LabelsIn(RequestSchema):
    """Labels, 10,000 at most."""

    labels: Annotated[list[LabelIn], Field(min_length=1, max_length=LABELS_AT_ONCE)]


class LabelsOut(AnswerSchema):
    """What became of labels: new, the same as before, and changed (the old ones are kept).

    `empty` ones had no value and were skipped.
    """

    added: int
    same: int
    changed: int
    empty: int = 0


class LabelOut(AnswerSchema):
    """One version of one label; `prediction_id` is empty until the client's own id was found."""

    id: str
    prediction_id: str
    own_id: str = ""
    row: int
    value: Any
    version: int
    is_current: bool
    by: str
    created_at: datetime


class PredictionOut(AnswerSchema):
    """One row of a captured prediction. `caller` is the id of the key; `label` the truth.

    `status` is 200, or what it failed with: then it has no outputs. `is_fallback` ones were
    answered by a standby in place of revisions with traffic.
    """

    prediction_id: str
    row: int
    at: datetime
    revision: int | None = None
    model_version: str
    caller: str
    own_id: str = ""
    latency_ms: float
    status: int = 200
    is_fallback: bool = False
    inputs: dict[str, Any]
    outputs: dict[str, Any]
    label: Any = None


class PredictionsOut(AnswerSchema):
    """Predictions, newest first; hand `next_cursor` back as `cursor` for older ones."""

    items: list[PredictionOut]
    next_cursor: str | None = None


class VerdictName(StrEnum):
    """How a feature stands: `drifted` in two windows in a row, `different` in the last one."""

    NO_BASELINE = "no_baseline"
    NOT_ENOUGH_DATA = "not_enough_data"
    STEADY = "steady"
    DIFFERENT = "different"
    DRIFTED = "drifted"


class FeatureOut(AnswerSchema):
    """A feature beside its baseline, in the span that was asked for.

    `share` of the values would have to move; `base` and `window` are the shares of each bin, named
    by `bins`. `p_adjusted` is of the last window, and empty for slices of fewer than 200 rows.
    """

    name: str
    is_output: bool
    kind: str
    verdict: VerdictName
    rows: int
    share: float
    psi: float
    p_adjusted: float | None = None
    missing_share: float
    base_missing_share: float
    bins: list[str] = []
    base: list[float] = []
    window: list[float] = []


class HourPoint(AnswerSchema):
    """An hour of an endpoint: `failed` where the model or its answer did (5xx), `refused` (4xx).

    Of a slice those count whose inputs were captured and match. `turned_away` (limits, overload, no
    replica) and `unauthorized` reached no revision: they belong to the endpoint as a whole.
    """

    hour: datetime
    predictions: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    failed: int | None = None
    refused: int | None = None
    turned_away: int | None = None
    unauthorized: int | None = None


class WindowOut(AnswerSchema):
    """A window beside the baseline: how many features it has and how many differ, the worst first.

    `failed` are captured predictions that failed (5xx) meanwhile; they are not among `rows`.
    `drifted` are those that differed in the window before as well.
    """

    starts_at: datetime
    ends_at: datetime
    rows: int
    failed: int = 0
    features: int
    different: int
    drifted: int
    worst: list[str] = []


class AlertOut(AnswerSchema):
    """Something that is wrong, or was."""

    id: str
    kind: str
    subject: str
    state: str
    reason: str
    revision: int | None = None
    created_at: datetime
    seen_at: datetime
    snoozed_until: datetime | None = None
    resolved_at: datetime | None = None


class MonitoringOut(AnswerSchema):
    """How an endpoint did in a span: volume, latency, errors, features, quality, alerts.

    `verdict` is the worst of its features; `baseline` says what they are compared with.
    `predictions` and all statistics are of answered ones; `error_rate` is the share of `failed`.
    Gateways captured `captured` of `captured` + `uncaptured` predictions in the span: the others
    are in no statistic. Of `shortened` ones rows above 100,000 or columns above 2,000 are left out
    here; the files of captured predictions have them. `answered_as_standby` were answered in place
    of revisions with traffic. `features_left_out`, `windows_left_out` and `alerts_left_out` are
    in no list here; alerts have a list of their own.
    """

    endpoint: str
    since: datetime
    until: datetime
    revision: int | None = None
    slice: str = ""
    verdict: VerdictName
    baseline: str
    predictions: int
    failed: int = 0
    refused: int = 0
    turned_away: int = 0
    unauthorized: int = 0
    error_rate: float | None = None
    captured: int = 0
    uncaptured: int = 0
    answered_as_standby: int = 0
    rows: int
    unreadable: int
    shortened: int = 0
    sampled_rows: int | None = None
    hours: list[HourPoint]
    features: list[FeatureOut]
    features_left_out: int = 0
    windows: list[WindowOut] = []
    windows_left_out: int = 0
    quality: QualityPoint
    quality_by_hour: list[QualityPoint]
    quality_by_revision: list[QualityPoint]
    alerts: list[AlertOut]
    alerts_left_out: int = 0
    settings: MonitorSettings
    task: ModelTaskOut = ModelTaskOut()
    empty_labels: int = 0
    looked_at: datetime | None = None
    fault: str = ""


class SnoozeIn(RequestSchema):
    """For how long an alert is not told again; the page still shows it."""

    hours: Number = Field(default=24.0, gt=0, le=2160)


class AlertChannelIn(RequestSchema):
    """Where alerts of an endpoint are told.

    `email`: an address of a member of the project. `webhook`: POSTs of JSON, signed with a secret
    that is shown once. `slack`: the same in Slack's format. Addresses inside a private network are
    refused.
    """

    kind: Literal["email", "webhook", "slack"]
    target: Annotated[Line, Field(min_length=3, max_length=2000)]


class AlertChannelOut(AnswerSchema):
    """A place where alerts are told; of a Slack address only its beginning, as it is a secret.

    `undelivered` alerts were given up after all attempts, or nobody may read them there any more.
    """

    id: str
    kind: str
    target: str
    made_by: str
    last_error: str = ""
    undelivered: int = 0
    created_at: datetime


class AlertChannelCreated(AlertChannelOut):
    """The one answer that carries the secret."""

    secret: str = Field(default="", repr=False)


class SelectionFilters(RequestSchema):
    """Which predictions are meant; all that are given must match.

    `status` is `answered`, `failed`, `any`, or a status such as 503. Without one a search finds
    any, and a selection takes answered ones.
    """

    prediction_ids: Annotated[list[PredictionId], Field(max_length=10_000)] | None = None
    since: Moment | None = None
    until: Moment | None = None
    model_version: Annotated[Line, Field(max_length=100)] | None = None
    caller: Annotated[Line, Field(max_length=64)] | None = None
    own_id: OwnId | None = None
    feature: FeatureName | None = None
    operator: Literal["=", "!=", "<", "<=", ">", ">="] = "="
    value: Annotated[Line, Field(max_length=200)] | None = None
    status: PredictionStatus | None = None

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        if (self.feature is None) != (self.value is None):
            raise ValueError("feature and value belong together")
        return self


ExportFormat = Literal["csv", "jsonl"]


class SelectionIn(RequestSchema):
    """Predictions that are to become a version of a dataset of the project."""

    dataset: Annotated[Line, Field(min_length=1, max_length=63)]
    filters: SelectionFilters = SelectionFilters()
    only_labelled: Truth = True


class SelectionOut(AnswerSchema):
    """Predictions on their way into a dataset: `version` when it is there, else `reason`."""

    id: str
    dataset: str
    version: int | None = None
    version_state: str = ""
    rows: int
    only_labelled: bool
    reason: str = ""
    by: str
    created_at: datetime
    done_at: datetime | None = None


class ErasureIn(RequestSchema):
    """Predictions that have to go, with their labels: by their id, or by the client's own."""

    prediction_id: PredictionId | None = None
    own_id: OwnId | None = None

    @model_validator(mode="after")
    def _names_one_of_them(self) -> Self:
        if (self.prediction_id is None) == (self.own_id is None):
            raise ValueError("name either prediction_id or own_id")
        return self


class ErasureOut(AnswerSchema):
    """A request that predictions be gone; done when `done_at` is there."""

    id: str
    prediction_id: str = ""
    own_id: str = ""
    rows: int
    by: str
    created_at: datetime
    done_at: datetime | None = None
