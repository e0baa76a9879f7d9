"""Joins outputs with their labels: selects the outputs of a task, and sums its measures.

Plain Python, because pages measure slices with it and do without numpy.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from portal.monitoring.statistics.groups import sums_of_rankings, sums_of_sets
from portal.monitoring.statistics.quality import Sums, sums_of_classes, sums_of_numbers
from portal.monitoring.statistics.tasks import (
    BOOLEAN,
    CLASSIFICATION,
    FORECAST,
    MULTI_LABEL,
    PROBABILITY,
    RANKING,
    REGRESSION,
    STRING,
    Basis,
    basis_of,
    canonical,
    name_of,
    number_of,
    observe,
    set_of,
)

CLASS: Final = "class"
CONFIDENCE: Final = "confidence"
_SINGLE: Final = (CLASS, "prediction", "label")
_CELL: Final = "prediction["
Outputs = Mapping[str, Any]


def needed(names: Sequence[str], task: str = "") -> list[str]:
    """Return the outputs that are needed to compare a prediction with the truth."""
    if task == MULTI_LABEL:
        return [name for name in names if name not in (CLASS, CONFIDENCE)]
    single = next((item for item in _SINGLE if item in names), None)
    if single is None:
        return _cells(names) or list(names[:1])
    scores = _scores(names)
    chosen = [single, *([CONFIDENCE] if CONFIDENCE in names else [])]
    if single == CLASS and "prediction" in names and task not in ("", CLASSIFICATION):
        chosen.append("prediction")  # for revisions that respond with one number
    return chosen + (list(scores.values()) if len(scores) == 2 else [])


def _cells(names: Sequence[str]) -> list[str]:
    return [name for name in names if name.startswith(_CELL)]


def _scores(names: Sequence[str]) -> dict[str, str]:
    """Return the outputs that hold the score of a class, by the class."""
    if CONFIDENCE not in names:
        return {}
    scores = [score for score in names if score not in (CLASS, CONFIDENCE, "prediction")]
    return {score.removeprefix(_CELL).removesuffix("]"): score for score in scores}


def sums_of(
    outputs: Sequence[Outputs],
    true: Sequence[Any],
    positive: str | None = None,
    *,
    basis: Basis | None = None,
    groups: Sequence[str] = (),
) -> Sums | None:
    """Return the quality sums of predictions, whose `outputs` are by name.

    Without a `basis` the task is inferred from these predictions. `positive` is the positive one of
    two classes. `groups` holds the request of each row. None if nothing can be compared.
    """
    if not outputs:
        return None
    names = list(dict.fromkeys(name for output in outputs for name in output))
    if not names:
        return None
    used = basis or _infer_basis(outputs, names, true)
    if used.task == MULTI_LABEL:
        sums = _set_sums(outputs, true)
    elif used.task in (REGRESSION, FORECAST, RANKING):
        sums = _regression_sums(outputs, names, true, used.task, groups)
    elif used.task == PROBABILITY:
        sums = _of_probabilities(outputs, names, true)
    elif used.task == CLASSIFICATION:
        sums = _of_classes(outputs, names, true, used.label_type, positive)
    else:
        return None
    return sums | {"basis": used.key}


def _infer_basis(outputs: Sequence[Outputs], names: Sequence[str], true: Sequence[Any]) -> Basis:
    seen = {name: observe(None, [output.get(name) for output in outputs]) for name in names}
    return basis_of(task=None, label_type=None, signature=None, outputs=seen, labels=true)


def _predicted_number(item: Outputs, names: Sequence[str]) -> float | None:
    for name in ("prediction", "label"):
        if item.get(name) is not None:
            return number_of(item[name])
    return number_of(item.get(names[0])) if len(names) == 1 else None


def _regression_sums(
    outputs: Sequence[Outputs],
    names: Sequence[str],
    true: Sequence[Any],
    task: str,
    groups: Sequence[str],
) -> Sums:
    predicted, truth, chosen = [], [], []
    misfits = unanswered = 0
    for at, (item, label) in enumerate(zip(outputs, true, strict=True)):
        value, fact = _predicted_number(item, names), number_of(label)
        misfits += fact is None
        unanswered += fact is not None and value is None
        if value is not None and fact is not None:
            predicted.append(value)
            truth.append(fact)
            chosen.append(groups[at] if groups else str(at))
    if task == RANKING:
        sums = sums_of_rankings(predicted, truth, chosen)
    else:
        sums = sums_of_numbers(predicted, truth, is_forecast=task == FORECAST)
    return sums | {"misfits": misfits, "unanswered": unanswered}


def _of_probabilities(
    outputs: Sequence[Outputs], names: Sequence[str], true: Sequence[Any]
) -> Sums:
    scores, truth = [], []
    misfits = unanswered = 0
    for item, label in zip(outputs, true, strict=True):
        score, fact = _predicted_number(item, names), canonical(label, BOOLEAN)
        if fact is None:
            misfits += 1
        elif score is None or not 0 <= score <= 1:
            unanswered += 1
        else:
            scores.append(score)
            truth.append(fact)
    predicted = ["true" if score >= 0.5 else "false" for score in scores]
    confidence = [max(score, 1 - score) for score in scores]
    sums = sums_of_classes(predicted, truth, confidence, scores, "true")
    return sums | {"misfits": misfits, "unanswered": unanswered}


def _of_classes(
    outputs: Sequence[Outputs],
    names: Sequence[str],
    true: Sequence[Any],
    label_type: str,
    positive: str | None,
) -> Sums:
    kind = label_type or STRING
    scores = _scores(names)
    chosen = None
    if len(scores) == 2:
        by_name = {canonical(name, kind) or name: name for name in scores}
        requested = canonical(positive, kind) if positive else None
        chosen = by_name.get(requested or "", list(scores)[-1])
    predicted, truth, confidence, score = [], [], [], []
    misfits = unanswered = 0
    for item, label in zip(outputs, true, strict=True):
        message, fact = canonical(_predicted_class(item, names), kind), canonical(label, kind)
        if fact is None or fact == "":
            misfits += 1
        elif message is None or message == "":
            unanswered += 1
        else:
            predicted.append(message)
            truth.append(fact)
            confidence.append(item.get(CONFIDENCE))
            score.append(item.get(scores[chosen]) if chosen is not None else None)
    name = (canonical(chosen, kind) or chosen) if chosen is not None else None
    sums = sums_of_classes(predicted, truth, confidence, score, name)
    return sums | {"misfits": misfits, "unanswered": unanswered}


def _predicted_class(item: Outputs, names: Sequence[str]) -> Any:
    """Return the class of one prediction. Of scores that are not probabilities, the highest."""
    for name in _SINGLE:
        if item.get(name) is not None:
            return item[name]
    cells = _cells(names)
    if len(cells) > 1:
        scores = [(item[cell], cell) for cell in cells if _is_number(item.get(cell))]
        best = max(scores, default=(0.0, ""))[1]
        return best.removeprefix(_CELL).removesuffix("]")
    return item.get(names[0]) if len(names) == 1 else None


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and not math.isnan(value)


def _set_sums(outputs: Sequence[Outputs], true: Sequence[Any]) -> Sums:
    predicted: list[frozenset[str]] = []
    truth: list[frozenset[str]] = []
    known: set[str] = set()
    misfits = unanswered = 0
    for item, label in zip(outputs, true, strict=True):
        fact, answer = set_of(label), _predicted_set(item)
        if fact is None:
            misfits += 1
        elif answer is None:
            unanswered += 1
        else:
            predicted.append(answer[0])
            truth.append(fact)
            known |= answer[1] | fact
    sums = sums_of_sets(predicted, truth, known)
    return sums | {"misfits": misfits, "unanswered": unanswered}


def _predicted_set(item: Outputs) -> tuple[frozenset[str], frozenset[str]] | None:
    """Return the predicted labels, and all possible ones."""
    there = {name: value for name, value in item.items() if value is not None}
    if not there:
        return None
    texts = [value for value in there.values() if isinstance(value, str)]
    if texts and not all(text in ("true", "false") for text in texts):
        if set(there) == {"prediction"}:
            items = set_of(there["prediction"]) or frozenset()
        else:
            items = frozenset(texts)
        return items, items
    if set(there) == {"prediction"}:
        return None  # a single number has no labels
    values = {
        name.removeprefix(_CELL).removesuffix("]"): 1.0
        if value in (True, "true")
        else 0.0
        if value in (False, "false")
        else float(value)
        for name, value in there.items()
    }
    if any(math.isnan(value) for value in values.values()):
        return None
    return frozenset(n for n, value in values.items() if value >= 0.5), frozenset(values)


__all__ = ["name_of", "needed", "sums_of"]
