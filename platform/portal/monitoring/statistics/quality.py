"""Additive quality sums: windows, hours and revisions combine without the rows.

Measures have the definitions of scikit-learn. Undefined ones are withheld with the reason.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from portal.monitoring.statistics.groups import (
    RANKINGS,
    SETS,
    add_groups,
    measures_of_groups,
)

Sums = dict[str, Any]
CLASSES: Final = "classes"
NUMBERS: Final = "numbers"
_CALIBRATION_BINS: Final = 10
_SCORE_BINS: Final = 1_000
_MOST_CLASSES: Final = 200
_SMALLEST: Final = 2.220446049250313e-16
_SUMMED: Final = ("n", "error", "absolute", "squared", "magnitude", "relative", "zeros")


def sums_of_classes(
    items: Sequence[str],
    true: Sequence[str],
    confidence: Sequence[float | None],
    score: Sequence[float | None],
    positive: str | None,
) -> Sums:
    """Return the sums of classifications: confusion, calibration, and scores of two classes.

    `score` is that of the class `positive`, if there are two classes.
    """
    pairs = Counter(zip(true, items, strict=True))
    stored = dict(pairs.most_common(_MOST_CLASSES**2))
    calibration = [[0, 0.0, 0] for _ in range(_CALIBRATION_BINS)]
    for item, truth, sure in zip(items, true, confidence, strict=True):
        if sure is None or not 0 <= sure <= 1:
            continue
        row = calibration[min(_CALIBRATION_BINS - 1, int(sure * _CALIBRATION_BINS))]
        row[0] += 1
        row[1] += sure
        row[2] += item == truth
    ups: Counter[int] = Counter()
    downs: Counter[int] = Counter()
    brier, log_loss, scored = [], [], 0
    if positive is not None:
        for truth, value in zip(true, score, strict=True):
            if value is None or not 0 <= value <= 1:
                continue
            place = min(_SCORE_BINS - 1, int(value * _SCORE_BINS))
            (ups if truth == positive else downs)[place] += 1
            chance = value if truth == positive else 1 - value
            brier.append((1 - chance) ** 2)
            log_loss.append(-math.log(min(1 - _SMALLEST, max(_SMALLEST, chance))))
            scored += 1
    return {
        "kind": CLASSES,
        "n": len(items),
        "right": sum(item == truth for item, truth in zip(items, true, strict=True)),
        "confusion": [[truth, item, times] for (truth, item), times in stored.items()],
        "calibration": calibration,
        "brier": math.fsum(brier),
        "log_loss": math.fsum(log_loss),
        "scored": scored,
        "ups": {str(place): times for place, times in ups.items()},
        "downs": {str(place): times for place, times in downs.items()},
    }


def sums_of_numbers(
    items: Sequence[float], true: Sequence[float], *, is_forecast: bool = False
) -> Sums:
    """Return the sums of predicted numbers. `error` is prediction less truth."""
    errors = [error - truth for error, truth in zip(items, true, strict=True)]
    # Differences to the first value are exact if all are equal, and lose less precision if values
    # are large and close together.
    pivot = true[0] if true else 0.0
    mean = pivot + math.fsum(truth - pivot for truth in true) / len(true) if true else 0.0
    return {
        "kind": NUMBERS,
        "is_forecast": is_forecast,
        "n": len(errors),
        "error": math.fsum(errors),
        "absolute": math.fsum(abs(error) for error in errors),
        "squared": math.fsum(error * error for error in errors),
        "magnitude": math.fsum(abs(truth) for truth in true),
        "relative": math.fsum(
            abs(error / truth) for error, truth in zip(errors, true, strict=True) if truth
        ),
        "zeros": sum(not truth for truth in true),
        "truth_mean": mean,
        "truth_spread": math.fsum((truth - mean) ** 2 for truth in true),
    }


def add(parts: Iterable[Sums], basis: str | None = None) -> Sums | None:
    """Return the sums of several windows together, None without any.

    Only sums of the same basis are added: of the given one, else of the first part.
    """
    there = [part for part in parts if part and part.get("n") is not None]
    if basis is not None:
        there = [part for part in there if part.get("basis") == basis]
    if not there:
        return None
    kind, basis = there[0]["kind"], there[0].get("basis")
    there = [part for part in there if part["kind"] == kind and part.get("basis") == basis]
    left_out = {
        name: sum(part.get(name, 0) for part in there) for name in ("misfits", "unanswered")
    }
    full = [part for part in there if part["n"]] or there[:1]
    if kind == NUMBERS:
        sums = _added_numbers(full)
    elif kind in (RANKINGS, SETS):
        sums = add_groups(full)
    else:
        sums = _added_classes(full)
    return sums | left_out | {"basis": basis}


def _added_numbers(parts: Sequence[Sums]) -> Sums:
    sums = {name: sum(part[name] for part in parts) for name in _SUMMED}
    count, mean, spread = 0, 0.0, 0.0
    for part in parts:
        # Chan's update: spreads around means add up without cancelling.
        both = count + part["n"]
        if not both:
            continue
        step = part["truth_mean"] - mean if count else 0.0
        spread += part["truth_spread"] + step * step * count * part["n"] / both
        mean = mean + step * part["n"] / both if count else part["truth_mean"]
        count = both
    shape = {"kind": NUMBERS, "is_forecast": parts[0]["is_forecast"]}
    return shape | sums | {"truth_mean": mean, "truth_spread": spread}


def _added_classes(parts: Sequence[Sums]) -> Sums:
    confusion: Counter[tuple[str, str]] = Counter()
    ups: Counter[str] = Counter()
    downs: Counter[str] = Counter()
    calibration = [[0, 0.0, 0] for _ in range(_CALIBRATION_BINS)]
    for part in parts:
        for truth, message, times in part["confusion"]:
            confusion[truth, message] += times
        ups.update(part["ups"])
        downs.update(part["downs"])
        for row, more in zip(calibration, part["calibration"], strict=True):
            for at in range(3):
                row[at] += more[at]
    names = ("n", "right", "brier", "log_loss", "scored")
    return {
        "kind": CLASSES,
        **{name: sum(part[name] for part in parts) for name in names},
        "confusion": [[truth, message, times] for (truth, message), times in confusion.items()],
        "calibration": calibration,
        "ups": dict(ups),
        "downs": dict(downs),
    }


def figures(sums: Sums) -> dict[str, float]:
    """Return the measures of sums."""
    return measures(sums)[0]


def measures(sums: Sums) -> tuple[dict[str, float], dict[str, str]]:
    """Return measures, and by name the reasons for those that are undefined for the data."""
    if not sums["n"]:
        return {}, {}
    if sums["kind"] in (RANKINGS, SETS):
        return measures_of_groups(sums)
    return _regression_metrics(sums) if sums["kind"] == NUMBERS else _classification_metrics(sums)


def _regression_metrics(sums: Sums) -> tuple[dict[str, float], dict[str, str]]:
    n = sums["n"]
    values = {
        "mae": sums["absolute"] / n,
        "rmse": math.sqrt(sums["squared"] / n),
        "bias": sums["error"] / n,
    }
    withheld: dict[str, str] = {}
    if sums["is_forecast"]:
        if sums["magnitude"]:
            values["wape"] = sums["absolute"] / sums["magnitude"]
        else:
            withheld["wape"] = "All labels are 0, so a relative error is undefined."
        if sums["zeros"]:
            withheld["mape"] = f"{sums['zeros']:,} labels are 0, and a share of 0 is undefined."
        else:
            values["mape"] = sums["relative"] / n
    if n < 2:
        withheld["r2"] = "R² needs at least two labels."
    elif sums["truth_spread"] <= 0:
        withheld["r2"] = "All labels have the same value, so there is no variance to explain."
    else:
        values["r2"] = 1 - sums["squared"] / sums["truth_spread"]
    return values, withheld


def _classification_metrics(sums: Sums) -> tuple[dict[str, float], dict[str, str]]:
    values: dict[str, float] = {"accuracy": sums["right"] / sums["n"]}
    withheld: dict[str, str] = {}
    rows = per_class(sums)
    if sum(row[2] for row in sums["confusion"]) == sums["n"]:
        values["precision"] = sum(row[1] for row in rows) / len(rows)
        values["recall"] = sum(row[2] for row in rows) / len(rows)
        values["f1"] = sum(row[3] for row in rows) / len(rows)
    else:
        reason = f"There are more than {_MOST_CLASSES**2:,} pairs of classes."
        withheld |= dict.fromkeys(("precision", "recall", "f1"), reason)
    if any(row[0] for row in sums["calibration"]):
        values["calibration_error"] = _calibration_error(sums["calibration"])
    if not sums["scored"]:
        if "calibration_error" in values:
            reason = "It needs two classes with a score each."
            withheld |= {"auc": reason, "brier": reason}
        return values, withheld
    values["brier"] = sums["brier"] / sums["scored"]
    values["log_loss"] = sums["log_loss"] / sums["scored"]
    curve = _curve(sums["ups"], sums["downs"])
    if curve is not None:
        values["auc"], values["average_precision"] = curve
    else:
        reason = "All labels are of one class."
        withheld |= {"auc": reason, "average_precision": reason}
    return values, withheld


def per_class(sums: Sums) -> list[tuple[str, float, float, float, int]]:
    """Return precision, recall, F1 and the number of labels of each class."""
    true: Counter[str] = Counter()
    counter: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for truth, item, times in sums["confusion"]:
        true[truth] += times
        counter[item] += times
        if truth == item:
            right[truth] += times
    return [
        (
            name,
            right[name] / counter[name] if counter[name] else 0.0,
            right[name] / true[name] if true[name] else 0.0,
            2 * right[name] / (true[name] + counter[name]),
            true[name],
        )
        for name in sorted(true.keys() | counter.keys())
    ]


def _calibration_error(rows: Sequence[Sequence[float]]) -> float:
    total = sum(row[0] for row in rows)
    return sum(abs(row[1] - row[2]) for row in rows) / total if total else 0.0


def _curve(ups: Mapping[str, int], downs: Mapping[str, int]) -> tuple[float, float] | None:
    """Return the area under the ROC curve and the average precision, of binned scores.

    Scores within a thousandth of each other are ties, which count half in the area.
    """
    all_ups, all_downs = sum(ups.values()), sum(downs.values())
    if not all_ups or not all_downs:
        return None
    above_ups, above_downs, area, precision = 0, 0, 0.0, 0.0
    for place in sorted({*map(int, ups), *map(int, downs)}, reverse=True):
        high, low = ups.get(str(place), 0), downs.get(str(place), 0)
        area += low * (above_ups + high / 2)
        above_ups += high
        above_downs += low
        precision += high / all_ups * above_ups / (above_ups + above_downs)
    return area / (all_ups * all_downs), precision
