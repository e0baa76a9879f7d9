"""The task of an endpoint and the type of its labels, declared or inferred, with the reason.

Plain Python, because pages use it too and do without numpy.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from slipway.schemas.truncation import shorten_name

CLASSIFICATION: Final = "classification"
PROBABILITY: Final = "probability"
REGRESSION: Final = "regression"
FORECAST: Final = "forecast"
RANKING: Final = "ranking"
MULTI_LABEL: Final = "multi_label"
BOOLEAN: Final = "boolean"
INTEGER: Final = "integer"
NUMBER: Final = "number"
STRING: Final = "string"
MOST_CLASSES: Final = 20
LONGEST_NAME: Final = 200
LARGEST: Final = 1e100
_NUMERIC_TASKS: Final = (REGRESSION, FORECAST, RANKING)
_WORDS: Final = {"true": "true", "1": "true", "1.0": "true", "false": "false", "0": "false"}
_BOOLEANS: Final = _WORDS | {"0.0": "false"}
_CELL: Final = "prediction["
_NAMED: Final = {
    BOOLEAN: "boolean (true, false, 1 or 0)",
    INTEGER: "a whole number",
    NUMBER: "a number",
    STRING: "text",
}


@dataclass(frozen=True)
class Basis:
    """Task and label type that measures are based on. `task` is empty while unknown.

    `is_certain` means that the type of labels is declared or known from the signature, so that
    labels of another type are refused.
    """

    task: str = ""
    label_type: str = ""
    reason: str = ""
    is_declared: bool = False
    is_certain: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the basis as a JSON object."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any] | None) -> "Basis":
        """Parse the result of `as_json`."""
        return cls(**(stored or {}))

    @property
    def key(self) -> str:
        """Key of the basis. Only sums with the same key may be added."""
        return f"{self.task}/{self.label_type}"


def name_of(value: Any) -> str | None:
    """Return the name of a class, alike for labels and outputs, or None if it is missing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        value = int(value) if value.is_integer() else repr(value)
    return shorten_name(str(value), LONGEST_NAME)


def number_of(value: Any) -> float | None:
    """Return a value as a finite number, or None if it is not one."""
    if isinstance(value, bool | int | float | str):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return None
        return number if abs(number) <= LARGEST else None
    return None


def canonical(value: Any, label_type: str) -> str | None:
    """Return the canonical name of a class, or None if it is of another type."""
    if value is None or isinstance(value, list):
        return None
    if label_type == BOOLEAN:
        return _BOOLEANS.get((name_of(value) or "").strip().lower())
    if label_type in (INTEGER, NUMBER):
        return _numeric_name(value, label_type)
    return name_of(value)


def _numeric_name(value: Any, label_type: str) -> str | None:
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str):
        text = value.strip()
        if text.lstrip("+-").isascii() and text.lstrip("+-").isdecimal():
            return str(int(text)) if len(text) <= 40 else None
    number = number_of(value)
    if number is None or (label_type == INTEGER and not number.is_integer()):
        return None
    return str(int(number)) if number.is_integer() else repr(number)


def set_of(value: Any) -> frozenset[str] | None:
    """Return the labels of a multi-label truth: a list, a JSON list, or texts joined by |."""
    if isinstance(value, str):
        text = value.strip()
        if text.startswith("["):
            try:
                value = json.loads(text)
            except ValueError:
                return None
        else:
            value = [part.strip() for part in text.split("|") if part.strip()]
    elif isinstance(value, bool | int | float):
        value = [value]
    if not isinstance(value, list):
        return None
    names = [name_of(each) for each in value]
    return frozenset(name for name in names if name is not None)


def misfit(value: Any, basis: Basis) -> str:
    """Return the expected type if a label does not have it, else ""."""
    if basis.task == MULTI_LABEL:
        return "" if set_of(value) is not None else "a list of labels"
    if isinstance(value, list):
        return "one value" if basis.task else ""
    if basis.task in _NUMERIC_TASKS:
        return "" if number_of(value) is not None else _NAMED[NUMBER]
    if not basis.is_certain or not basis.label_type:
        return ""
    fits = canonical(value, basis.label_type) is not None
    return "" if fits else _NAMED[basis.label_type]


def observe(before: Mapping[str, Any] | None, values: Iterable[Any]) -> dict[str, Any]:
    """Return statistics of the values of an output, together with those seen before."""
    seen: dict[str, Any] = dict(
        before or {"text": False, "fractions": False, "low": None, "high": None, "values": []}
    )
    names = set(seen["values"])
    for value in values:
        if value is None or (isinstance(value, float) and math.isnan(value)):
            continue
        name = name_of(value) or ""
        if len(names) <= MOST_CLASSES:
            names.add(name)
        if isinstance(value, bool | str):
            seen["text"] = True
            continue
        seen["fractions"] = seen["fractions"] or not float(value).is_integer()
        seen["low"] = value if seen["low"] is None else min(seen["low"], value)
        seen["high"] = value if seen["high"] is None else max(seen["high"], value)
    return seen | {"values": sorted(names)}


def basis_of(
    *,
    task: str | None,
    label_type: str | None,
    signature: Mapping[str, Any] | None,
    outputs: Mapping[str, Mapping[str, Any]],
    labels: Sequence[Any],
) -> Basis:
    """Return the task and the type of labels: declared, or else inferred.

    `outputs` holds the result of `observe` by the name of the output.
    """
    inferred = _inferred(signature, outputs, labels)
    chosen = task or inferred.task
    kind = label_type or _type_for(chosen, inferred)
    if not task:
        reason = inferred.reason
    elif label_type:
        reason = "Declared."
    else:
        reason = f"Declared. The type of labels, {kind or 'unknown'}, is inferred."
    return Basis(
        task=chosen,
        label_type=kind,
        reason=reason,
        is_declared=bool(task),
        is_certain=bool(label_type) or (inferred.is_certain and kind == inferred.label_type),
    )


def _type_for(task: str, inferred: Basis) -> str:
    if task in _NUMERIC_TASKS:
        return NUMBER
    if task == PROBABILITY and inferred.task != PROBABILITY:
        return BOOLEAN
    return STRING if task == MULTI_LABEL else inferred.label_type


def _inferred(
    signature: Mapping[str, Any] | None,
    outputs: Mapping[str, Mapping[str, Any]],
    labels: Sequence[Any],
) -> Basis:
    if any(isinstance(label, list) for label in labels):
        return Basis(MULTI_LABEL, STRING, "Multi-label, inferred: a label is a list.")
    if "class" in outputs and "confidence" in outputs:
        return _basis_of_scores(outputs["class"], labels)
    datatype = _datatype(signature)
    if datatype == "BOOL":
        return Basis(
            *(CLASSIFICATION, BOOLEAN),
            "Classification, inferred: the output is boolean in the signature.",
            is_certain=True,
        )
    if datatype == "BYTES":
        return Basis(
            *(CLASSIFICATION, STRING),
            "Classification, inferred: the output is text in the signature.",
            is_certain=True,
        )
    if not outputs:
        return Basis(reason="Unknown until there are predictions and labels.")
    cells = [name for name in outputs if name.startswith(_CELL)]
    if len(cells) > 1:
        return _of_cells(labels)
    name = next((item for item in ("prediction", "label") if item in outputs), next(iter(outputs)))
    return _of_single(outputs[name], labels)


def _datatype(signature: Mapping[str, Any] | None) -> str:
    named = list((signature or {}).get("outputs") or [])
    if len(named) != 1 or len(named[0].get("shape") or [-1]) > 1:
        return ""
    return str(named[0].get("datatype") or "")


def _basis_of_scores(seen: Mapping[str, Any], labels: Sequence[Any]) -> Basis:
    is_two = set(seen["values"]) <= {"0", "1"}
    are_booleans = any(isinstance(label, bool) or label in ("true", "false") for label in labels)
    kind = BOOLEAN if is_two and are_booleans and _all_boolean(labels) else STRING
    return Basis(
        *(CLASSIFICATION, kind),
        "Classification, inferred: the outputs are scores of classes that add up to 1.",
    )


def _of_cells(labels: Sequence[Any]) -> Basis:
    if any(not _is_integer(label) for label in labels if number_of(label) is not None):
        return Basis(
            reason=(
                "Unknown: there are several outputs, and labels are numbers with fractions. "
                "Name the output that labels refer to `prediction`."
            )
        )
    return Basis(
        *(CLASSIFICATION, STRING),
        "Classification, inferred: the highest of several outputs is the predicted class.",
    )


def _of_single(seen: Mapping[str, Any], labels: Sequence[Any]) -> Basis:
    if seen["text"]:
        values = set(seen["values"])
        if values <= {"true", "false"}:
            return Basis(
                *(CLASSIFICATION, BOOLEAN),
                "Classification, inferred: the predictions are true and false.",
            )
        return Basis(CLASSIFICATION, STRING, "Classification, inferred: the predictions are text.")
    if not seen["values"]:
        return Basis(reason="Unknown until there are predictions and labels.")
    if seen["fractions"]:
        is_share = seen["low"] >= 0 and seen["high"] <= 1
        if is_share and labels and _all_boolean(labels):
            return Basis(
                *(PROBABILITY, BOOLEAN),
                "Probability, inferred: predictions lie between 0 and 1, and labels are true and "
                "false or 1 and 0.",
            )
        return Basis(
            REGRESSION, NUMBER, "Regression, inferred: the predictions are numbers with fractions."
        )
    numbers = [number for number in map(number_of, labels) if number is not None]
    if any(not number.is_integer() for number in numbers):
        return Basis(
            REGRESSION, NUMBER, "Regression, inferred: the labels are numbers with fractions."
        )
    distinct = max(len(seen["values"]), len(set(numbers)))
    if distinct > MOST_CLASSES:
        return Basis(
            *(REGRESSION, NUMBER),
            f"Regression, inferred: whole numbers with more than {MOST_CLASSES} values.",
        )
    return Basis(
        *(CLASSIFICATION, INTEGER),
        f"Classification, inferred: whole numbers with {distinct} values. Choose regression if "
        "they are quantities.",
    )


def _is_integer(value: Any) -> bool:
    number = number_of(value)
    return number is not None and number.is_integer()


def _all_boolean(labels: Sequence[Any]) -> bool:
    return all(canonical(label, BOOLEAN) is not None for label in labels)
