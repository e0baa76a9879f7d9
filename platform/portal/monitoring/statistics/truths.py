"""Predictions beside what turned out to be true: which output says it, and which figures fit.

Plain Python: pages ask it of a slice as well, and do without numpy.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from portal.monitoring.statistics.quality import Sums, sums_of_classes, sums_of_numbers

CLASS: Final = "class"
CONFIDENCE: Final = "confidence"
_SINGLE: Final = (CLASS, "prediction", "label")
_CELL: Final = "prediction["
Outputs = Mapping[str, Any]


def name_of(value: Any) -> str | None:
    """Return a class as labels and outputs write it alike; None where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        value = int(value) if value.is_integer() else f"{value:g}"
    return str(value)[:200]


def needed(names: Sequence[str]) -> list[str]:
    """Return those of the outputs that it takes to compare a prediction with the truth."""
    said = next((one for one in _SINGLE if one in names), None)
    if said is None:
        return _cells(names) or list(names[:1])
    scores = _scores(names)
    found = [said, *([CONFIDENCE] if CONFIDENCE in names else [])]
    return found + (list(scores.values()) if len(scores) == 2 else [])


def _cells(names: Sequence[str]) -> list[str]:
    return [one for one in names if one.startswith(_CELL)]


def _scores(names: Sequence[str]) -> dict[str, str]:
    """Return the outputs that hold the score of a class, by the class."""
    if CONFIDENCE not in names:
        return {}
    scores = [one for one in names if one not in (CLASS, CONFIDENCE)]
    return {one.removeprefix(_CELL).removesuffix("]"): one for one in scores}


def sums_of(
    outputs: Sequence[Outputs], true: Sequence[Any], positive: str | None = None
) -> Sums | None:
    """Return the sums of quality of predictions, whose `outputs` are by name.

    Of a list of scores the highest is what was said. `positive` is the class that is looked for,
    where there are two. None where nothing can be compared.
    """
    if not outputs:
        return None
    names = list(dict.fromkeys(name for one in outputs for name in one))
    place = next((one for one in _SINGLE if one in names), None)
    if place is None and len(_cells(names)) > 1:
        return _of_scores(outputs, _cells(names), true)
    if place is None and not names:
        return None
    said = [one.get(place or names[0]) for one in outputs]
    if CONFIDENCE not in names and _are_quantities(said, true):
        pairs = [
            (float(one), float(truth))
            for one, truth in zip(said, true, strict=True)
            if one is not None and math.isfinite(one)
        ]
        return sums_of_numbers([one for one, _ in pairs], [truth for _, truth in pairs])
    return _of_classes(outputs, said, true, _scores(names), positive)


def _are_quantities(said: Sequence[Any], true: Sequence[Any]) -> bool:
    there = [one for one in said if one is not None]
    if not all(_is_number(one) for one in there):
        return False
    if not all(_is_number(one) and math.isfinite(one) for one in true):
        return False
    return any(float(one) != math.floor(one) for one in (*there, *true) if math.isfinite(one))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _of_scores(
    outputs: Sequence[Outputs], cells: Sequence[str], true: Sequence[Any]
) -> Sums | None:
    """Compare lists of scores that are no probabilities, such as logits."""
    if any(isinstance(one, float) and not one.is_integer() for one in true):
        return None  # a quantity, which one of several outputs may mean
    said = []
    for one in outputs:
        scores = [(one[cell], cell) for cell in cells if _is_number(one.get(cell))]
        best = max(scores, default=(0.0, ""))[1]
        said.append(best.removeprefix(_CELL).removesuffix("]"))
    nothing = [None] * len(said)
    return sums_of_classes(said, [name_of(one) or "" for one in true], nothing, nothing, None)


def _of_classes(
    outputs: Sequence[Outputs],
    said: Sequence[Any],
    true: Sequence[Any],
    scores: Mapping[str, str],
    positive: str | None,
) -> Sums:
    chosen = None
    if len(scores) == 2:
        chosen = positive if positive in scores else list(scores)[-1]
    score = [one.get(scores[chosen]) if chosen is not None else None for one in outputs]
    return sums_of_classes(
        [name_of(one) or "" for one in said],
        [name_of(one) or "" for one in true],
        [one.get(CONFIDENCE) for one in outputs],
        score,
        chosen,
    )
