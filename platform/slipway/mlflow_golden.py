"""Golden predictions of a model that MLflow logs, on rows that its run names as inputs.

Where the model was logged, it is loaded once as any server would load it, and predicts a few of the
rows. The answers are an artifact of the run. Wherever the version is served, they have to come back
equal. A model that answers the same rows differently each time, a large one, and one that does not
take these rows has none.
"""

import json
from collections import OrderedDict
from contextlib import ExitStack
from importlib import import_module
from typing import Any

from slipway.samples import plain_rows

__all__ = ["Proofs", "golden_file_of"]

_MOST_ROWS = 16
_MOST_HELD = 8
_MOST_BYTES = 256 * 1024**2
_MOST_TEXT = 2 * 1024**2
_MOST_LOOKED_AT = 1_000
# Booleans, numbers and texts, but not dates, complex numbers and bytes.
_KINDS = set("biufUT")
# A model may be served on another processor than the one, or the GPU, on which it was logged.
_TOLERANCES = {"absolute_tolerance": 1e-4, "relative_tolerance": 1e-3}
_FOLDER = "slipway/golden"


def golden_file_of(model_uuid: str) -> str:
    """Return the path of the artifact that holds the golden predictions of a run's model."""
    return f"{_FOLDER}/{model_uuid}.json"


class Proofs:
    """Inputs and models that a run logs, matched in whichever order they arrive."""

    def __init__(self) -> None:
        self._rows: OrderedDict[tuple[str, str], Any] = OrderedDict()
        self._named: OrderedDict[str, list[Any]] = OrderedDict()
        self._waiting: OrderedDict[str, list[Any]] = OrderedDict()

    def add_rows(self, key: tuple[str, str], rows: Any) -> None:
        """Hold a few rows of a dataset until a run names it."""
        self._rows[key] = _first_complete_rows(rows)
        _limit(self._rows)

    def named(self, client: Any, run_id: str, key: tuple[str, str]) -> None:
        """Let the models of a run that are not proved yet predict a dataset that it names."""
        rows = self._rows.get(key)
        if rows is None:
            return
        self._named.setdefault(run_id, []).append(rows)
        _limit(self._named)
        waiting = self._waiting.get(run_id, [])
        self._waiting[run_id] = [
            item for item in waiting if not _record_predictions(client, item, rows)
        ]

    def record_model(self, client: Any, model: Any) -> None:
        """Let a model predict rows that its run has named. `model` is MLflow's `ModelInfo`."""
        if not any(
            _record_predictions(client, model, rows) for rows in self._named.get(model.run_id, [])
        ):
            self._waiting.setdefault(model.run_id, []).append(model)
            _limit(self._waiting)


def _limit(held: "OrderedDict[Any, Any]") -> None:
    while len(held) > _MOST_HELD:
        held.popitem(last=False)


def _first_complete_rows(rows: Any) -> Any:
    """Return a copy of the first rows as JSON, because the script may change the data.

    None if there are none, or if JSON cannot represent their values, such as dates and objects.
    """
    by_place = getattr(rows, "iloc", rows)
    whole: list[int] = []
    for at in range(min(len(rows), _MOST_LOOKED_AT)):
        [row] = plain_rows(by_place[at : at + 1])
        whole += [at] if _is_complete(row) else []
        if len(whole) == _MOST_ROWS:
            break
    few = by_place[whole].copy()
    return few if whole and all(map(_is_plain, _columns(few))) else None


def _columns(rows: Any) -> list[Any]:
    return [rows[name] for name in rows.columns] if hasattr(rows, "columns") else [rows]


def _is_plain(values: Any) -> bool:
    if values.dtype.kind == "O":
        return all(isinstance(item, str | bool | int | float) for item in values.tolist())
    return values.dtype.kind in _KINDS


def _is_complete(value: Any) -> bool:
    """Return whether no value is missing, infinite or NaN."""
    if isinstance(value, dict):
        return all(map(_is_complete, value.values()))
    return all(map(_is_complete, value)) if isinstance(value, list) else value is not None


def _record_predictions(client: Any, model: Any, rows: Any) -> bool:
    """Record a model's predictions. False if it does not accept these rows."""
    inputs = getattr(model.signature, "inputs", None)
    if inputs is None:
        return False
    if hasattr(rows, "iloc"):
        names = inputs.input_names() if inputs.has_input_names() else []
        if not names or not set(names).issubset(rows.columns):
            return False
        rows = rows[names]
    elif inputs.has_input_names():
        return False
    inputs = plain_rows(rows)
    most = min(len(inputs), _MOST_TEXT // len(json.dumps(inputs[0])))
    items = _predict_twice(model.model_uri, rows[:most]) if most else None
    if items is not None:
        golden = {"inputs": inputs[:most], "outputs": items, **_TOLERANCES}
        text = json.dumps(golden, allow_nan=False, separators=(",", ":"))
        client.log_text(model.run_id, text, golden_file_of(model.model_uuid))
    return True


def _predict_twice(model_uri: str, rows: Any) -> list[Any] | None:
    """Return what the model predicts, or None when that is not the same twice."""
    if (import_module("mlflow.models").Model.load(model_uri).model_size_bytes or 0) > _MOST_BYTES:
        return None
    with ExitStack() as quiet:
        quiet.enter_context(import_module("mlflow.utils.autologging_utils").disable_autologging())
        loaded = import_module("mlflow.pyfunc").load_model(model_uri)
        answers = [loaded.predict(rows) for _ in range(2)]
    if any(len(answer) != len(rows) or isinstance(answer, dict) for answer in answers):
        return None
    first, second = map(plain_rows, answers)
    return first if first == second and _is_complete(first) else None
