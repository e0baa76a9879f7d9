"""Presenters of monitoring: labels of verdicts, series for charts."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from portal.monitoring.prediction_search import PredictionRow
from slipway.schemas.monitoring import (
    AlertOut,
    FeatureOut,
    MonitoringOut,
    VerdictName,
)
from slipway.schemas.percent import percent
from slipway.schemas.quality import QualityPoint

# Label and colour of each tag. An unknown result is never green.
VERDICTS = {
    VerdictName.DRIFTED: ("Drifted", "bad"),
    VerdictName.DIFFERENT: ("Drifted once", "warn"),
    VerdictName.STEADY: ("Steady", "ok"),
    VerdictName.NOT_ENOUGH_DATA: ("Not enough data", ""),
    VerdictName.NO_BASELINE: ("No baseline", ""),
}
_WORDS = {
    VerdictName.DRIFTED: "At least one feature differs from the baseline in two windows in a row.",
    VerdictName.DIFFERENT: (
        "At least one feature differs from the baseline in the last window. The next window "
        "decides."
    ),
    VerdictName.STEADY: "No feature differs from the baseline.",
    VerdictName.NOT_ENOUGH_DATA: "Needs a window of at least 200 predictions.",
    VerdictName.NO_BASELINE: (
        "Log the training data with slipway.track.data, or wait for the first 1,000 "
        "predictions, which become the baseline."
    ),
}
_FIGURES = {
    "accuracy": "Accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "auc": "AUC",
    "average_precision": "Average precision",
    "brier": "Brier score",
    "log_loss": "Log loss",
    "calibration_error": "Calibration error",
    "mae": "Mean absolute error",
    "rmse": "RMSE",
    "bias": "Bias",
    "r2": "R²",
    "wape": "WAPE",
    "mape": "MAPE",
    "ndcg": "NDCG",
    "mrr": "Mean reciprocal rank",
    "subset_accuracy": "Subset accuracy",
    "hamming_loss": "Hamming loss",
    "f1_micro": "F1 (micro)",
    "jaccard": "Jaccard index",
}
_MAIN = ("accuracy", "mae", "ndcg", "subset_accuracy")
MOST_SHOWN = 12


_ALERTS = {
    "drift": "Inputs drifted",
    "output_drift": "Outputs drifted",
    "quality": "Quality",
    "errors": "Errors",
    "latency": "Latency",
    "not_captured": "Predictions not captured",
    "standby_answers": "Served by a standby",
}
_SAID = ("class", "confidence")
_SAID_AT_MOST = 3
_DIGITS = re.compile(r"(\d+)")
# Whole numbers up to this one are written without an exponent.
_WHOLE = 10**16
Cells = list[tuple[str, str]]


@dataclass(frozen=True)
class VerdictTag:
    """A verdict as a tag."""

    label: str
    tone: str
    is_active: bool = False


def tag_of(verdict: VerdictName) -> VerdictTag:
    """Return a verdict as a tag."""
    return VerdictTag(*VERDICTS[verdict])


def describe_verdict(verdict: VerdictName) -> str:
    """Return what a verdict means."""
    return _WORDS[verdict]


def figures_of(point: QualityPoint) -> list[tuple[str, str]]:
    """Return measured figures in words."""
    return [
        (name, _figure(key, point.figures[key]))
        for key, name in _FIGURES.items()
        if key in point.figures
    ]


def _figure(key: str, value: float) -> str:
    return percent(value) if key == "accuracy" else f"{value:.4g}"


def withheld_of(point: QualityPoint) -> list[tuple[str, str]]:
    """Return measures that are not shown, with the reasons."""
    return [(_FIGURES.get(key, key), reason) for key, reason in point.withheld.items()]


@dataclass(frozen=True)
class Confusion:
    """A confusion matrix: for each label its name and the rows of each predicted class."""

    names: list[str]
    rows: list[tuple[str, list[int]]]


def confusion_of(point: QualityPoint) -> Confusion | None:
    """Return the confusion matrix where it has few enough classes to be read."""
    names = sorted({name for cell in point.confusion for name in (cell.truth, cell.predicted)})
    if not names or len(names) > MOST_SHOWN or point.confusion_left_out:
        return None
    cells = {(cell.truth, cell.predicted): cell.rows for cell in point.confusion}
    rows = [(truth, [cells.get((truth, name), 0) for name in names]) for truth in names]
    return Confusion(names, rows)


def rows_of(features: Sequence[FeatureOut]) -> list[tuple[FeatureOut, VerdictTag]]:
    """Return features with their tags."""
    return [(feature, tag_of(feature.verdict)) for feature in features]


def alerts_of(alerts: Sequence[AlertOut]) -> list[tuple[AlertOut, str]]:
    """Return alerts with what they are about, in words."""
    return [(alert, _ALERTS.get(alert.kind, alert.kind)) for alert in alerts]


@dataclass(frozen=True)
class PredictionListRow:
    """A row of a prediction in a list. `main_outputs` are the outputs that matter most."""

    row: PredictionRow
    main_outputs: Cells
    inputs: Cells
    outputs: Cells


def lines_of(rows: Sequence[PredictionRow]) -> list[PredictionListRow]:
    """Return predictions with their values in an order and a length that people can read."""
    return [_line(prediction_row) for prediction_row in rows]


def _line(row: PredictionRow) -> PredictionListRow:
    outputs = _cells(row.outputs)
    cells = [cell for cell in outputs if cell[0] in _SAID]
    return PredictionListRow(row, cells or outputs[:_SAID_AT_MOST], _cells(row.inputs), outputs)


def _cells(values: Mapping[str, Any]) -> Cells:
    there = [
        (name, _format_value(name, value)) for name, value in values.items() if value is not None
    ]
    return sorted(there, key=_naturally)


def _naturally(cell: tuple[str, str]) -> list[tuple[int, int, str]]:
    """Sort x[2] before x[10]."""
    parts = _DIGITS.split(cell[0])
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part]


def _format_value(name: str, value: Any) -> str:
    """Return a value with all its digits, but for a probability that Slipway computed."""
    if not isinstance(value, float):
        return str(value)
    if name == "confidence":
        return f"{value:.4g}"
    return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else repr(value)


def charts_of(shown: MonitoringOut, feature: FeatureOut | None) -> dict[str, str]:
    """Return series of charts, as JSON for attributes."""
    main = next((name for name in _MAIN if name in shown.quality.figures), "accuracy")
    hours = [hour_point.hour.strftime("%m-%d %H:%M") for hour_point in shown.hours]
    values: dict[str, Any] = {
        "volume": {
            "at": hours,
            "predictions": [hour_point.predictions for hour_point in shown.hours],
        },
        "latency": {
            "at": hours,
            "half": [hour_point.p50_ms for hour_point in shown.hours],
            "slow": [hour_point.p95_ms for hour_point in shown.hours],
        },
        "errors": {
            "at": hours,
            "failed": [hour_point.failed for hour_point in shown.hours],
            "rejected": [hour_point.rejected for hour_point in shown.hours],
        },
        "quality": {
            "at": [hour_point.name[5:16].replace("T", " ") for hour_point in shown.quality_by_hour],
            "measured": [hour_point.figures.get(main) for hour_point in shown.quality_by_hour],
            "estimate": [hour_point.estimate for hour_point in shown.quality_by_hour],
        },
    }
    if feature is not None:
        values["feature"] = {
            "bins": feature.bins,
            "base": [round(100 * hour_point, 2) for hour_point in feature.base],
            "window": [round(100 * hour_point, 2) for hour_point in feature.window],
        }
    return {name: json.dumps(series) for name, series in values.items()}
