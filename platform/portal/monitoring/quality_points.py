"""Measured quality for pages and the API: by hour, revision and slice, with reasons."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from portal.endpoints.models import Revision
from portal.monitoring.alerting import estimate_of
from portal.monitoring.label_basis import quality_of
from portal.monitoring.models import HourSummary
from portal.monitoring.statistics import quality, truths
from portal.monitoring.statistics.tasks import CLASSIFICATION, PROBABILITY, Basis
from slipway.schemas.quality import (
    CalibrationBin,
    ClassQuality,
    ConfusionCell,
    ModelTaskOut,
    QualityPoint,
)

_OUT = "out."
_MOST_CLASSES = 50
_MOST_CELLS = 400


def task_out(basis: Basis) -> ModelTaskOut:
    """Describe the task of an endpoint."""
    return ModelTaskOut(
        task=basis.task,
        label_type=basis.label_type,
        reason=basis.reason or "Unknown until there are predictions and labels.",
        is_declared=basis.is_declared,
    )


def quality_of_rows(
    rows: Sequence[Mapping[str, Any]],
    labels: Mapping[tuple[str, int], Any],
    total: int,
    positive: str | None,
    basis: Basis,
) -> QualityPoint:
    """Return the quality of the labelled predictions of a slice of `total` rows."""
    there = [row for row in rows if (row["prediction_id"], row["row"]) in labels]
    outputs = [
        {name.removeprefix(_OUT): cell for name, cell in row.items() if name.startswith(_OUT)}
        for row in there
    ]
    true = [labels[row["prediction_id"], row["row"]] for row in there]
    groups = [row["prediction_id"] for row in there]
    sums = truths.sums_of(outputs, true, positive, basis=basis, groups=groups)
    point = QualityPoint(
        name="slice",
        rows=total,
        labelled=len(there),
        coverage=min(1.0, len(there) / total) if total else 0.0,
    )
    return _with_measures(point, sums, is_detailed=True)


def quality_point(
    name: str, hours: Sequence[HourSummary], basis: Basis, *, is_detailed: bool = False
) -> QualityPoint:
    """Return the quality of some hours together."""
    rows = sum(hour.rows for hour in hours)
    labelled = sum(hour.labelled for hour in hours)
    expected = None
    if basis.task in ("", CLASSIFICATION, PROBABILITY):
        expected = estimate_of(hours)
    point = QualityPoint(
        name=name,
        rows=rows,
        labelled=labelled,
        coverage=min(1.0, labelled / rows) if rows else 0.0,
        estimate=expected[0] if expected else None,
        estimate_low=expected[1] if expected else None,
        estimate_high=expected[2] if expected else None,
        is_calibrated=any((hour.estimate or {}).get("calibrated") for hour in hours),
    )
    return _with_measures(point, quality_of(hours, basis), is_detailed=is_detailed)


def _with_measures(
    point: QualityPoint, sums: quality.Sums | None, *, is_detailed: bool
) -> QualityPoint:
    if sums is None:
        return point
    point.figures, point.withheld = quality.measures(sums)
    point.misfits, point.unanswered = sums.get("misfits", 0), sums.get("unanswered", 0)
    if not is_detailed or sums["kind"] != quality.CLASSES or not sums["n"]:
        return point
    all_classes = quality.per_class(sums)
    classes = sorted(all_classes, key=lambda row: -row[4])[:_MOST_CLASSES]
    point.classes_left_out = len(all_classes) - len(classes)
    point.classes = [
        ClassQuality(name=name, precision=precision, recall=recall, f1=f1, labels=labels)
        for name, precision, recall, f1, labels in sorted(classes)
    ]
    cells = sorted(sums["confusion"], key=lambda cell: -cell[2])[:_MOST_CELLS]
    point.confusion_left_out = len(sums["confusion"]) - len(cells)
    point.confusion = [
        ConfusionCell(truth=truth, predicted=predicted, rows=rows)
        for truth, predicted, rows in sorted(cells)
    ]
    point.calibration = [
        CalibrationBin(rows=count, confidence=sure / count, accuracy=right / count)
        for count, sure, right in sums["calibration"]
        if count
    ]
    return point


def by_hour(hours: Sequence[HourSummary], basis: Basis) -> list[QualityPoint]:
    """Return the quality of each hour, or of each day if there are more than 72 hours."""
    values: defaultdict[datetime, list[HourSummary]] = defaultdict(list)
    is_long = len({hour.hour for hour in hours}) > 72
    for hour in hours:
        values[hour.hour.replace(hour=0) if is_long else hour.hour].append(hour)
    return [quality_point(at.isoformat(), some, basis) for at, some in sorted(values.items())]


def by_revision(
    hours: Sequence[HourSummary], revisions: Mapping[str, Revision], basis: Basis
) -> list[QualityPoint]:
    """Return the quality of each revision."""
    values: defaultdict[int, list[HourSummary]] = defaultdict(list)
    for hour in hours:
        if hour.revision_id in revisions:
            values[revisions[hour.revision_id].number].append(hour)
    return [quality_point(str(number), some, basis) for number, some in sorted(values.items())]
