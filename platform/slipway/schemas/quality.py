"""Measured quality of predictions that have labels, on the wire."""

from slipway.schemas.base import AnswerSchema


class ConfusionCell(AnswerSchema):
    """The number of rows with one label and one prediction."""

    truth: str
    predicted: str
    rows: int


class ClassQuality(AnswerSchema):
    """Precision, recall and F1 of one class, and the number of rows with that label."""

    name: str
    precision: float
    recall: float
    f1: float
    labels: int


class CalibrationBin(AnswerSchema):
    """Rows predicted with about the same confidence: its mean, and the share that was right."""

    rows: int
    confidence: float
    accuracy: float


class ModelTaskOut(AnswerSchema):
    """The task of an endpoint and the type of its labels, and the reason where it is inferred.

    Both are empty while they are unknown. Correct them by the settings `task` and `label_type`.
    """

    task: str = ""
    label_type: str = ""
    reason: str = ""
    is_declared: bool = False


class QualityPoint(AnswerSchema):
    """Measured quality of an hour, a day, a revision or all, and how much of it is labelled.

    `withheld` names measures that cannot be right for these labels, with the reason. `misfits` are
    labels of another type than the task needs, `unanswered` rows without a prediction to compare:
    both are in no measure. `confusion`, `classes` and `calibration` are given for all and for a
    slice. The classes with the most labels and the largest cells are listed: `classes_left_out`
    and `confusion_left_out` count the others. A slice is measured with the newest labels of the
    span: `labels_left_out` counts older ones, which are in no measure of it.

    `estimate` is what was to be expected from how sure the model is (CBPE), with its range: an
    estimate, which cannot see concept drift.
    """

    name: str
    rows: int
    labelled: int
    coverage: float
    figures: dict[str, float] = {}
    withheld: dict[str, str] = {}
    misfits: int = 0
    unanswered: int = 0
    labels_left_out: int = 0
    confusion: list[ConfusionCell] = []
    confusion_left_out: int = 0
    classes: list[ClassQuality] = []
    classes_left_out: int = 0
    calibration: list[CalibrationBin] = []
    estimate: float | None = None
    estimate_low: float | None = None
    estimate_high: float | None = None
    is_calibrated: bool = False
