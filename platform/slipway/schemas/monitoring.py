"""Wire schemas of captured predictions, drift, quality and alerts."""

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
    """Types of labels, which decide how labels compare. For `boolean`, true = 1 = "1" = "true"."""

    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"


class Hiding(StrEnum):
    """Treatment of a column at capture, before anything of it is stored."""

    DROP = "drop"
    HASH = "hash"


class MonitorSettings(RequestSchema):
    """Monitoring settings of an endpoint.

    A window is full with `window_rows` predictions over at least `window_at_least_s` seconds, or
    with 200 after `window_at_most_s`. A feature differs from the baseline if the difference is
    significant (below `alpha`, after Benjamini-Hochberg over all features) **and** large: `share`
    of the values differ, or the mean moved by `shift_sd` standard deviations, or the share of
    missing values changed by `missing`. Two such windows in a row raise an alert.

    `min_accuracy` and `max_mean_error` raise an alert on measured quality. Without them, an alert
    is raised if the measured accuracy is below the range of its estimate. `max_error_percent` and
    `max_p95_ms` cover the last 15 minutes. `watch_drift` and `watch_outputs` enable alerts on
    inputs and outputs. `hidden` columns are hashed or dropped at capture. `positive` is the
    positive class of a binary task. Captured predictions are deleted after `keep_days`.

    `task` and `label_type` are inferred unless they are declared. Changing them recomputes quality.
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
    """The settings in a response. Clients ignore settings they do not know."""

    model_config = ConfigDict(extra="ignore", from_attributes=True)


class MonitorChange(RequestSchema):
    """Changes to the monitoring settings. Omitted fields stay unchanged."""

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
    """The true value (ground truth) of a prediction, identified by its id or the client's own id.

    The client's own id is the `client_request_id` in the body (`id` in the Open Inference
    Protocol). `row` is the index in a request of several rows.
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
    """At most 10,000 labels."""

    labels: Annotated[list[LabelIn], Field(min_length=1, max_length=LABELS_AT_ONCE)]


class LabelsOut(AnswerSchema):
    """Number of new, unchanged and changed labels. Old values of changed labels are stored.

    `empty` labels had no value and were skipped.
    """

    added: int
    same: int
    changed: int
    empty: int = 0


class LabelOut(AnswerSchema):
    """One version of a label. `prediction_id` is empty until the client's own id is matched."""

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
    """One row of a captured prediction. `caller` is the id of the key, `label` the true value.

    `status` is 200 or an error status without outputs. `is_fallback` predictions were served by a
    standby in place of revisions with traffic.
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
    """Predictions, newest first. Pass `next_cursor` as `cursor` to get older ones."""

    items: list[PredictionOut]
    next_cursor: str | None = None


class VerdictName(StrEnum):
    """Drift verdict of a feature: `drifted` in two windows in a row, `different` in the last."""

    NO_BASELINE = "no_baseline"
    NOT_ENOUGH_DATA = "not_enough_data"
    STEADY = "steady"
    DIFFERENT = "different"
    DRIFTED = "drifted"


class FeatureOut(AnswerSchema):
    """A feature compared with its baseline, in the requested time range.

    `share` of the values differ from the baseline (total variation). `base` and `window` are the
    shares of each bin, named by `bins`. `p_adjusted` belongs to the last window, and is empty for
    slices of fewer than 200 rows.
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
    """One hour of an endpoint. `failed` counts model errors (5xx), `refused` client errors (4xx).

    A slice counts only captured inputs that match. `rejected` (limits, overload, no replica) and
    `unauthorized` requests reached no revision, and belong to the endpoint as a whole.
    """

    hour: datetime
    predictions: int
    p50_ms: float | None = None
    p95_ms: float | None = None
    failed: int | None = None
    refused: int | None = None
    rejected: int | None = None
    unauthorized: int | None = None


class WindowOut(AnswerSchema):
    """A window compared with the baseline: its features, and how many differ, the worst first.

    `failed` counts captured predictions that failed (5xx) meanwhile. They are not among `rows`.
    `drifted` counts features that also differed in the previous window.
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
    """An alert, firing or resolved."""

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
    """Monitoring report of a time range: volume, latency, errors, features, quality, alerts.

    `verdict` is the worst of its features, and `baseline` names what they are compared with.
    `predictions` and all statistics cover successful requests. `error_rate` is the share of
    `failed`. Gateways captured `captured` of `captured` + `uncaptured` predictions in the range,
    and the others are in no statistic. For `shortened` ones, rows above 100,000 or columns above
    2,000 are omitted here, but are in the files of captured predictions. `answered_as_standby`
    were served in place of revisions with traffic. `features_left_out`, `windows_left_out` and
    `alerts_left_out` count items that are omitted here. Alerts have a list of their own.
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
    rejected: int = 0
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
    processed_at: datetime | None = None
    fault: str = ""


class SnoozeIn(RequestSchema):
    """Hours without notifications of an alert. The page still shows it."""

    hours: Number = Field(default=24.0, gt=0, le=2160)


class AlertChannelIn(RequestSchema):
    """A notification channel for alerts of an endpoint.

    `email`: an address of a member of the project. `webhook`: JSON by POST, signed with a secret
    that is shown once. `slack`: the same in Slack's format. Addresses inside a private network are
    refused.
    """

    kind: Literal["email", "webhook", "slack"]
    target: Annotated[Line, Field(min_length=3, max_length=2000)]


class AlertChannelOut(AnswerSchema):
    """A notification channel. A Slack URL is shortened, because it is a secret.

    `undelivered` counts alerts that failed all attempts, or whose recipient lost access.
    """

    id: str
    kind: str
    target: str
    made_by: str
    last_error: str = ""
    undelivered: int = 0
    created_at: datetime


class AlertChannelCreated(AlertChannelOut):
    """A new channel with its secret, which only this response contains."""

    secret: str = Field(default="", repr=False)


class SelectionFilters(RequestSchema):
    """Filters for predictions. All given filters must match.

    `status` is `answered`, `failed`, `any`, or a status such as 503. By default a search includes
    any status, and a selection only answered predictions.
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
    """Predictions to export as a version of a dataset of the project."""

    dataset: Annotated[Line, Field(min_length=1, max_length=63)]
    filters: SelectionFilters = SelectionFilters()
    only_labelled: Truth = True


class SelectionOut(AnswerSchema):
    """An export of predictions to a dataset: `version` when it is ready, otherwise `reason`."""

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
    """Predictions to erase with their labels, by prediction id or by the client's own id."""

    prediction_id: PredictionId | None = None
    own_id: OwnId | None = None

    @model_validator(mode="after")
    def _names_one_of_them(self) -> Self:
        if (self.prediction_id is None) == (self.own_id is None):
            raise ValueError("name either prediction_id or own_id")
        return self


class ErasureOut(AnswerSchema):
    """A request to erase predictions. It is complete when `done_at` is set."""

    id: str
    prediction_id: str = ""
    own_id: str = ""
    rows: int
    by: str
    created_at: datetime
    done_at: datetime | None = None
