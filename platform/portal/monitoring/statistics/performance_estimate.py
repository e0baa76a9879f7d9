"""Confidence-based performance estimation (CBPE): expected quality before labels arrive.

It averages the model's confidence, after calibration on rows with known truth. It detects changes
of the inputs but no concept drift: if the same input has another answer now, the model is as
confident as before and wrong.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_SIGMAS: Final = 1.96


@dataclass(frozen=True)
class Calibration:
    """Isotonic function from confidence to accuracy, as points that are interpolated."""

    confidence: list[float]
    share: list[float]

    def __call__(self, values: Floats) -> Floats:
        """Return calibrated confidences."""
        if not self.confidence:
            return values
        return np.interp(values, self.confidence, self.share)


def calibrate(confidence: Floats, is_right: Floats) -> Calibration:
    """Fit isotonic regression (pool adjacent violators)."""
    order = np.argsort(confidence, kind="stable")
    points: list[list[float]] = []  # mean of x, mean of y, weight
    for x, y in zip(confidence[order].tolist(), is_right[order].tolist(), strict=True):
        points.append([x, y, 1.0])
        while len(points) > 1 and points[-2][1] >= points[-1][1]:
            x2, y2, w2 = points.pop()
            x1, y1, w1 = points.pop()
            w = w1 + w2
            points.append([(x1 * w1 + x2 * w2) / w, (y1 * w1 + y2 * w2) / w, w])
    return Calibration([point[0] for point in points], [point[1] for point in points])


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval, if only the inputs changed."""

    value: float
    low: float
    high: float
    rows: int


def estimate_accuracy(confidence: Floats, calibration: Calibration) -> Estimate | None:
    """Return the expected accuracy of predictions with these confidences."""
    sure = np.clip(calibration(confidence[np.isfinite(confidence)]), 0.0, 1.0)
    if not sure.size:
        return None
    value = float(sure.mean())
    spread = _SIGMAS * math.sqrt(float(np.sum(sure * (1 - sure)))) / sure.size
    return Estimate(value, max(0.0, value - spread), min(1.0, value + spread), int(sure.size))


def expected_confusion(
    score: Floats, calibration: Calibration, threshold: float = 0.5
) -> tuple[float, float, float, float]:
    """Return expected true positives, false positives, false negatives and true negatives.

    `score` is that of the positive class, and `calibration` maps it to the probability of that
    class.
    """
    sure = np.clip(calibration(score), 0.0, 1.0)
    matches = score >= threshold
    return (
        float(sure[matches].sum()),
        float((1 - sure[matches]).sum()),
        float(sure[~matches].sum()),
        float((1 - sure[~matches]).sum()),
    )
