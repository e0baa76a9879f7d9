"""Measured quality as sums that add up: windows, hours and revisions combine without the rows."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

Sums = dict[str, Any]
CLASSES: Final = "classes"
NUMBERS: Final = "numbers"
_CALIBRATION_BINS: Final = 10
_SCORE_BINS: Final = 1_000
_MOST_CLASSES: Final = 200


def sums_of_classes(
    said: Sequence[str],
    true: Sequence[str],
    confidence: Sequence[float | None],
    score: Sequence[float | None],
    positive: str | None,
) -> Sums:
    """Return the sums of classifications: confusion, calibration, and scores of two classes.

    `score` is that of the class `positive`, where there are two.
    """
    pairs = Counter(zip(true, said, strict=True))
    kept = dict(pairs.most_common(_MOST_CLASSES**2))
    calibration = [[0, 0.0, 0] for _ in range(_CALIBRATION_BINS)]
    brier, scored = 0.0, 0
    for one, truth, sure in zip(said, true, confidence, strict=True):
        if sure is None or not 0 <= sure <= 1:
            continue
        right = int(one == truth)
        row = calibration[min(_CALIBRATION_BINS - 1, int(sure * _CALIBRATION_BINS))]
        row[0] += 1
        row[1] += sure
        row[2] += right
        brier += (sure - right) ** 2
        scored += 1
    ups: Counter[int] = Counter()
    downs: Counter[int] = Counter()
    if positive is not None:
        for truth, value in zip(true, score, strict=True):
            if value is not None and 0 <= value <= 1:
                place = min(_SCORE_BINS - 1, int(value * _SCORE_BINS))
                (ups if truth == positive else downs)[place] += 1
    return {
        "kind": CLASSES,
        "n": len(said),
        "right": sum(one == truth for one, truth in zip(said, true, strict=True)),
        "confusion": [[truth, one, times] for (truth, one), times in kept.items()],
        "calibration": calibration,
        "brier": brier,
        "scored": scored,
        "ups": {str(place): times for place, times in ups.items()},
        "downs": {str(place): times for place, times in downs.items()},
    }


def sums_of_numbers(said: Sequence[float], true: Sequence[float]) -> Sums:
    """Return the sums of predicted numbers."""
    errors = [one - truth for one, truth in zip(said, true, strict=True)]
    return {
        "kind": NUMBERS,
        "n": len(errors),
        "error": math.fsum(errors),
        "absolute": math.fsum(abs(one) for one in errors),
        "squared": math.fsum(one * one for one in errors),
        "truth": math.fsum(true),
        "truth_squared": math.fsum(one * one for one in true),
    }


def add(parts: Iterable[Sums]) -> Sums | None:
    """Return the sums of several windows together; None without any of the kind of the first."""
    found = [part for part in parts if part and part.get("n")]
    if not found:
        return None
    kind = found[0]["kind"]
    found = [part for part in found if part["kind"] == kind]
    if kind == NUMBERS:
        return {"kind": kind} | {
            name: sum(part[name] for part in found) for name in found[0] if name != "kind"
        }
    confusion: Counter[tuple[str, str]] = Counter()
    ups: Counter[str] = Counter()
    downs: Counter[str] = Counter()
    calibration = [[0, 0.0, 0] for _ in range(_CALIBRATION_BINS)]
    for part in found:
        for truth, said, times in part["confusion"]:
            confusion[truth, said] += times
        ups.update(part["ups"])
        downs.update(part["downs"])
        for row, more in zip(calibration, part["calibration"], strict=True):
            for at in range(3):
                row[at] += more[at]
    return {
        "kind": kind,
        **{name: sum(part[name] for part in found) for name in ("n", "right", "brier", "scored")},
        "confusion": [[truth, said, times] for (truth, said), times in confusion.items()],
        "calibration": calibration,
        "ups": dict(ups),
        "downs": dict(downs),
    }


def figures(sums: Sums) -> dict[str, float]:
    """Return the figures that sums come to."""
    n = sums["n"]
    if sums["kind"] == NUMBERS:
        spread = sums["truth_squared"] - sums["truth"] ** 2 / n
        found = {
            "mae": sums["absolute"] / n,
            "rmse": math.sqrt(sums["squared"] / n),
            "bias": sums["error"] / n,
        }
        return found | ({"r2": 1 - sums["squared"] / spread} if spread > 0 else {})
    found = {"accuracy": sums["right"] / n, "f1": _macro_f1(sums["confusion"])}
    if sums["scored"]:
        found["brier"] = sums["brier"] / sums["scored"]
        found["calibration_error"] = _calibration_error(sums["calibration"])
    auc = _auc(sums["ups"], sums["downs"])
    return found | ({"auc": auc} if auc is not None else {})


def _macro_f1(confusion: Sequence[Sequence[Any]]) -> float:
    true: Counter[str] = Counter()
    said: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for truth, one, times in confusion:
        true[truth] += times
        said[one] += times
        if truth == one:
            right[truth] += times
    names = true.keys() | said.keys()
    if not names:
        return 0.0
    return sum(2 * right[name] / (true[name] + said[name]) for name in names) / len(names)


def _calibration_error(rows: Sequence[Sequence[float]]) -> float:
    total = sum(row[0] for row in rows)
    return sum(abs(row[1] - row[2]) for row in rows) / total if total else 0.0


def _auc(ups: Mapping[str, int], downs: Mapping[str, int]) -> float | None:
    """Return the area under the curve from scores counted in thousandths; ties count half."""
    all_ups, all_downs = sum(ups.values()), sum(downs.values())
    if not all_ups or not all_downs:
        return None
    below, area = 0, 0.0
    for place in sorted({*map(int, ups), *map(int, downs)}):
        high, low = ups.get(str(place), 0), downs.get(str(place), 0)
        area += high * (below + low / 2)
        below += low
    return area / (all_ups * all_downs)
