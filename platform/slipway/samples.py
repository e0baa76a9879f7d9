"""A fair sample of the data a model was trained on, for what watches its predictions later."""

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any

from slipway.errors import InvalidInput

MOST_ROWS = 10_000
_MOST_CELLS = 2_000_000
# Folder in which the portal expects samples of a model's training data.
_FOLDER = "slipway/data"


def file_of(context: str) -> str:
    """Return the path of the artifact that holds the sample of a run's data in this context."""
    return f"{_FOLDER}/{re.sub(r'[^A-Za-z0-9_-]+', '-', context)[:60] or 'data'}.json"


def sample_of(inputs: Any, predictions: Any = None, truth: Any = None) -> dict[str, Any]:
    """Return rows of a data frame, an array or a list, and what belongs to them, for JSON.

    At most 10,000 rows, fewer of wide ones, drawn by a fixed seed.
    """
    total = _length(inputs)
    width = max(1, len(list(_cells(_row(inputs, 0)))))
    most = max(100, min(MOST_ROWS, _MOST_CELLS // width))
    places = list(range(total))
    if total > most:
        places = sorted(random.Random(0).sample(places, most))  # noqa: S311  (a sample, no secret)
    sample: dict[str, Any] = {
        "format": 1,
        "rows": total,
        "inputs": [_json_value(row) for row in _rows(inputs, places)],
    }
    if hasattr(inputs, "columns"):
        sample["columns"] = [str(name) for name in inputs.columns]
    for name, values in (("predictions", predictions), ("truth", truth)):
        if values is None:
            continue
        if _length(values) != total:
            raise InvalidInput(
                f"There are {_length(values)} {name} of {total} rows.",
                field=name,
                next_step="Pass one for each row.",
            )
        sample[name] = [_json_value(_row(values, at)) for at in places]
    return sample


def plain_rows(values: Any) -> list[Any]:
    """Return all rows of a data frame, an array or a list as JSON can carry them."""
    return [_json_value(row) for row in _rows(values, range(_length(values)))]


def _length(values: Any) -> int:
    try:
        length = len(values)
    except TypeError:
        length = 0
    if not length:
        raise InvalidInput(
            f"Data of type {type(values).__name__} holds no rows.",
            field="data",
            next_step="Pass a data frame, an array, or a list of rows.",
        )
    return length


def _rows(values: Any, places: Sequence[int]) -> list[Any]:
    if hasattr(values, "columns") and hasattr(values, "iloc"):
        # In one call, which retains column types and takes less than a second for 10,000 rows.
        return list(values.iloc[list(places)].to_dict("records"))
    return [_row(values, at) for at in places]


def _row(values: Any, at: int) -> Any:
    by_place = getattr(values, "iloc", values)
    row = by_place[at]
    return row.to_dict() if hasattr(values, "columns") and hasattr(row, "to_dict") else row


def _cells(row: Any) -> Iterator[Any]:
    row = row.tolist() if hasattr(row, "tolist") else row
    if isinstance(row, Mapping):
        row = list(row.values())
    if isinstance(row, Sequence) and not isinstance(row, str):
        for item in row:
            yield from _cells(item)
    else:
        yield row


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _json_value(item) for name, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    # Missing values of pandas in a column of integers or dates.
    if type(value).__name__ in {"NAType", "NaTType"} or (
        isinstance(value, float) and not isfinite(value)
    ):
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
