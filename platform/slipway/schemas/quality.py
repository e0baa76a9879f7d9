"""Wire schemas of the measured quality of labelled predictions."""

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
    """Rows with similar confidence: their mean confidence, and the share that was correct."""

    rows: int
    confidence: float
    accuracy: float


class ModelTaskOut(AnswerSchema):
    """The task of an endpoint and the type of its labels, and the reason if they were inferred.

    Both are empty while they are unknown. Correct them with the settings `task` and `label_type`.
    """

    task: str = ""
    label_type: str = ""
    reason: str = ""
    is_declared: bool = False


class QualityPoint(AnswerSchema):
    """Measured quality of an hour, a day, a revision or all, and the share of labelled predictions.

    `withheld` names measures that are invalid for these labels, with the reason. `misfits` are
    labels of another type than the task needs, `unanswered` rows without a prediction to compare.
    Neither is in any measure. `confusion`, `classes` and `calibration` are given for all and for a
    slice. The classes with the most labels and the largest cells are listed: `classes_left_out`
    and `confusion_left_out` count the others. A slice is measured with the newest labels of the
    range: `labels_left_out` counts older ones, which are not included.

    `estimate` is the expected accuracy from the model's confidence (CBPE), with its range. It
    cannot detect concept drift.
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
