"""What the pages of monitoring show: verdicts in words, series for charts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from slipway.schemas.monitoring import FeatureOut, MonitoringOut, QualityPoint, VerdictName

# Word, tone of its tag. What is not known is never green.
VERDICTS = {
    VerdictName.DRIFTED: ("Drifted", "bad"),
    VerdictName.DIFFERENT: ("Different once", "warn"),
    VerdictName.STEADY: ("Steady", "ok"),
    VerdictName.NOT_ENOUGH_DATA: ("Not enough data", ""),
    VerdictName.NO_BASELINE: ("Nothing to compare with", ""),
}
_WORDS = {
    VerdictName.DRIFTED: "At least one feature differs from the baseline in two windows in a row.",
    VerdictName.DIFFERENT: "At least one feature differs in the last window; the next one decides.",
    VerdictName.STEADY: "No feature differs from the baseline.",
    VerdictName.NOT_ENOUGH_DATA: "A verdict needs a window of at least 200 predictions.",
    VerdictName.NO_BASELINE: "Log the training data with slipway.track.data, or wait for the first "
    "1,000 predictions to compare later ones with.",
}
_FIGURES = {
    "accuracy": "Accuracy",
    "f1": "F1",
    "auc": "AUC",
    "brier": "Brier score",
    "calibration_error": "Calibration error",
    "mae": "Mean error",
    "rmse": "RMSE",
    "bias": "Bias",
    "r2": "R²",
}


@dataclass(frozen=True)
class Tag:
    """A verdict as a tag."""

    word: str
    tone: str
    is_active: bool = False


def tag_of(verdict: VerdictName) -> Tag:
    """Return a verdict as a tag."""
    return Tag(*VERDICTS[verdict])


def words_of(verdict: VerdictName) -> str:
    """Return what a verdict means."""
    return _WORDS[verdict]


def figures_of(point: QualityPoint) -> list[tuple[str, str]]:
    """Return measured figures in words."""
    return [
        (name, f"{point.figures[key]:.4g}")
        for key, name in _FIGURES.items()
        if key in point.figures
    ]


def rows_of(features: Sequence[FeatureOut]) -> list[tuple[FeatureOut, Tag]]:
    """Return features with their tags."""
    return [(one, tag_of(one.verdict)) for one in features]


def charts_of(shown: MonitoringOut, feature: FeatureOut | None) -> dict[str, str]:
    """Return series of charts, as JSON for attributes."""
    main = "accuracy" if "accuracy" in shown.quality.figures else "mae"
    hours = [one.hour.strftime("%m-%d %H:%M") for one in shown.hours]
    found: dict[str, Any] = {
        "volume": {"at": hours, "predictions": [one.predictions for one in shown.hours]},
        "latency": {
            "at": hours,
            "half": [one.p50_ms for one in shown.hours],
            "slow": [one.p95_ms for one in shown.hours],
        },
        "errors": {"at": hours, "failed": [one.failed for one in shown.hours]},
        "quality": {
            "at": [one.name[5:16].replace("T", " ") for one in shown.quality_by_hour],
            "measured": [one.figures.get(main) for one in shown.quality_by_hour],
            "estimate": [one.estimate for one in shown.quality_by_hour],
        },
    }
    if feature is not None:
        found["feature"] = {
            "bins": feature.bins,
            "base": [round(100 * one, 2) for one in feature.base],
            "window": [round(100 * one, 2) for one in feature.window],
        }
    return {name: json.dumps(series) for name, series in found.items()}
