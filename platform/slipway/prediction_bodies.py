"""Inputs of predictions as the wire carries them, and answers as the caller gave the inputs.

pandas and numpy are used where the caller has loaded them, and never required.
"""

import sys
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from math import isinf, isnan
from typing import Any

from slipway.errors import InvalidInput
from slipway.schemas.problem import FieldError

# A mapping with only one of these keys already is a body of `/invocations`.
FORMS = ("inputs", "instances", "dataframe_split", "dataframe_records")
_MOST_FAULTS = 20


def body_of(data: Any) -> dict[str, Any]:
    """Return the body of `/invocations` for a frame, an array, records, rows or columns.

    A missing number becomes null. Raises InvalidInput, which names the column and what was
    expected, for what JSON cannot carry.
    """
    faults: list[FieldError] = []
    if is_frame(data):
        columns = [str(name) for name in data.columns]
        rows = data.to_numpy(dtype=object).tolist()
        values = [
            [_json_value(value, f"{columns[at]}[{number}]", faults) for at, value in enumerate(row)]
            for number, row in enumerate(rows)
        ]
        body: dict[str, Any] = {"dataframe_split": {"columns": columns, "data": values}}
    elif isinstance(data, Mapping):
        if len(data) == 1 and next(iter(data)) in FORMS:
            (form,) = data
            body = {form: _json_value(data[form], form, faults)}
        else:
            body = {"inputs": _json_value(data, "", faults)}
    elif _is_records(data):
        body = {"dataframe_records": _json_value(list(data), "", faults)}
    elif hasattr(data, "tolist") or _is_rows(data):
        body = {"inputs": _json_value(data, "inputs", faults)}
    else:
        raise InvalidInput(
            f"Data of type {type(data).__name__} cannot be predicted on.",
            field="data",
            next_step="Pass a pandas data frame, a numpy array, a list of rows or records, or a "
            "mapping of columns.",
        )
    if faults:
        raise InvalidInput(
            "The request was not sent: values stand in it that JSON cannot carry.",
            field=faults[0].field,
            errors=faults,
            next_step="Replace infinities, and turn objects into numbers, text or moments. A "
            "missing number may stay: it is sent as null.",
        )
    return body


def is_frame(data: Any) -> bool:
    """Return whether `data` is a pandas data frame."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy") and hasattr(data, "index")


def _is_rows(data: Any) -> bool:
    return isinstance(data, Sequence) and not isinstance(data, str | bytes | bytearray)


def _is_records(data: Any) -> bool:
    return _is_rows(data) and bool(data) and all(isinstance(row, Mapping) for row in data)


def _json_value(value: Any, place: str, faults: list[FieldError]) -> Any:
    """Return a value as JSON carries it. Unsupported values are added to `faults`."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return _finite(float(value), place, faults)
    if isinstance(value, Mapping):
        inside = f"{place}." if place else ""
        return {str(name): _json_value(v, f"{inside}{name}", faults) for name, v in value.items()}
    if isinstance(value, datetime | date):
        return None if value != value else value.isoformat()  # NaT differs from itself
    if hasattr(value, "tolist"):  # arrays, series and numpy scalars
        return _json_value(value.tolist(), place, faults)
    if _is_rows(value):
        return [_json_value(item, f"{place}[{at}]", faults) for at, item in enumerate(value)]
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    _fault(
        faults,
        place,
        f"a number, text, a moment or null was expected, not {type(value).__name__}",
    )
    return None


def _finite(value: float, place: str, faults: list[FieldError]) -> float | None:
    if isinf(value):
        _fault(faults, place, "a finite number or null was expected, not an infinity")
    return None if isnan(value) or isinf(value) else value


def _fault(faults: list[FieldError], place: str, message: str) -> None:
    if len(faults) < _MOST_FAULTS:
        faults.append(FieldError(field=place.lstrip("."), message=message))


def convert_like_input(data: Any, predictions: Any) -> Any:
    """Return predictions as the caller gave the inputs: pandas for pandas, numpy for numpy.

    Rows of a frame keep their index.
    """
    if is_frame(data):
        return _to_frame(sys.modules["pandas"], predictions, data.index)
    if hasattr(data, "tolist") and "numpy" in sys.modules:
        return _to_array(sys.modules["numpy"], predictions)
    return predictions


def _to_frame(pandas: Any, predictions: Any, index: Any) -> Any:
    has_rows = isinstance(predictions, list) and len(predictions) == len(index)
    kept = {"index": index} if has_rows else {}
    if isinstance(predictions, dict) or (
        isinstance(predictions, list) and predictions and isinstance(predictions[0], dict | list)
    ):
        return pandas.DataFrame(predictions, **kept)
    if isinstance(predictions, list):
        return pandas.Series(predictions, name="prediction", **kept)
    return predictions


def _to_array(numpy: Any, predictions: Any) -> Any:
    if isinstance(predictions, dict):
        return {name: _to_array(numpy, value) for name, value in predictions.items()}
    if isinstance(predictions, list) and not (predictions and isinstance(predictions[0], dict)):
        return numpy.asarray(predictions)
    return predictions
