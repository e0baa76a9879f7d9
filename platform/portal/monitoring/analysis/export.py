"""Captured predictions as a table with the types of the signature, from the bodies as sent."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from portal.monitoring.analysis.flatten import FAILED
from portal.monitoring.analysis.rows import IN, Row, SignatureColumns, Unreadable, request_rows
from portal.monitoring.analysis.summaries import read_rows
from portal.monitoring.statistics.tasks import (
    BOOLEAN,
    INTEGER,
    MULTI_LABEL,
    NUMBER,
    STRING,
    Basis,
    canonical,
    name_of,
    number_of,
    set_of,
)
from slipway.schemas.tables import ReadSettings
from slipway.tables.columns import Column

_MOST: Final = 1_000_000
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_BOOLEANS: Final = {"true": True, "false": False}
_EXACT_IN_DOUBLE: Final = 2**53
_INT64: Final = range(-(2**63), 2**63)


def typed_table(
    *,
    paths: Sequence[str],
    raw: Sequence[str],
    ids: Sequence[str],
    signatures: Mapping[str, Any],
    types: Mapping[str, str],
    labels: Mapping[str, Sequence[Any]],
    only_labelled: bool,
    basis: Basis,
) -> tuple[pa.Table | None, list[str]]:
    """Return chosen predictions with their labels, and the revisions that predicted them.

    `raw` are the files with the bodies. A prediction that is in none of them has the values of the
    flat files, in which numbers are doubles. `types` are those of input columns.
    """
    chosen = pc.field("prediction_id").isin(list(ids))
    flat, _ = read_rows(paths, where=chosen, most=10**9, failed=None)
    bodies = _bodies(raw, set(ids), signatures, types)
    inputs: list[Row] = []
    details: list[Row] = []
    truth: list[Any] = []
    for item in flat.to_pylist():
        known = labels.get(f"{item['prediction_id']}/{item['row']}")
        if known is None and only_labelled:
            continue
        rows = bodies.get(item["prediction_id"], [])
        if item["row"] < len(rows):
            inputs.append(rows[item["row"]])
        else:
            inputs.append({n.removeprefix(IN): v for n, v in item.items() if n.startswith(IN)})
        details.append(item)
        truth.append(known[0] if known is not None else None)
        if len(details) >= _MOST:
            break
    if not details:
        return None, []
    names = list(dict.fromkeys(name for row in inputs for name in row))
    columns = {name: _array(name, [row.get(name) for row in inputs], types) for name in names}
    columns["label"] = label_array(truth, basis)
    columns["slipway_prediction_id"] = pa.array([item["prediction_id"] for item in details])
    columns["slipway_row"] = pa.array([item["row"] for item in details], pa.int64())
    columns["slipway_at"] = pa.array([item["at"] for item in details], pa.timestamp("us", tz="UTC"))
    columns["slipway_model_version"] = pa.array([item["model_version"] for item in details])
    columns["slipway_status"] = pa.array([item[FAILED] or 200 for item in details], pa.int64())
    return pa.table(columns), sorted({item["revision"] for item in details if item["revision"]})


def sent_inputs(
    *,
    raw: Sequence[str],
    rows: Sequence[tuple[str, int]],
    signatures: Mapping[str, Any],
    types: Mapping[str, str],
) -> list[Row]:
    """Return the inputs of rows of predictions as they were sent, {} where no file has them."""
    bodies = _bodies(raw, {prediction_id for prediction_id, _ in rows}, signatures, types)
    sent = (bodies.get(prediction_id, [])[row : row + 1] for prediction_id, row in rows)
    return [next(iter(inputs), {}) for inputs in sent]


def _bodies(
    raw: Sequence[str], ids: set[str], signatures: Mapping[str, Any], types: Mapping[str, str]
) -> dict[str, list[Row]]:
    """Return the rows of requests as they were sent, by prediction."""
    named = {revision: SignatureColumns.of(signature) for revision, signature in signatures.items()}
    columns = ["prediction_id", "revision", "is_shadow", "request"]
    bodies: dict[str, list[Row]] = {}
    for path in raw:
        try:
            file = pq.ParquetFile(path)
        except FileNotFoundError:
            continue
        with file:
            for batch in file.iter_batches(batch_size=2_000, columns=columns):
                is_chosen = pc.is_in(batch.column("prediction_id"), pa.array(list(ids)))
                for item in batch.filter(is_chosen).to_pylist():
                    if item["is_shadow"] or item["prediction_id"] in bodies:
                        continue
                    signature = named.get(item["revision"] or "", SignatureColumns())
                    try:
                        rows, _ = request_rows(item["request"] or "", signature, cell_of(types))
                    except (Unreadable, RecursionError):
                        continue
                    bodies[item["prediction_id"]] = rows
    return bodies


def cell_of(types: Mapping[str, str]) -> Callable[[str, str], Any]:
    """Return a function that parses a CSV cell by the type of its column."""

    def cell(name: str, text: str) -> Any:
        kind = types.get(name, "")
        if kind in ("string", "datetime"):
            return text
        if kind == "bool":
            return _BOOLEANS.get(text.strip().lower(), text)
        if _WHOLE.fullmatch(text):
            return int(text)
        if kind or not re.fullmatch(r"[+-]?0[0-9].*", text):
            try:
                return float(text)
            except ValueError:
                return text
        return text

    return cell


def _array(name: str, values: list[Any], types: Mapping[str, str]) -> pa.Array:
    """Return a column of its declared type, or else of a type that fits all values."""
    kind = types.get(name, "")
    if "int" in kind:
        values = [_to_integer(value) for value in values]
    attempts: list[dict[str, str]] = [{name: kind}] if kind not in ("", "datetime") else []
    for types_of_attempt in (*attempts, {}):
        misfits: list[str] = []
        column = Column(name, ReadSettings(types=types_of_attempt), None)
        array = column.from_values(values, partial(_note, misfits))
        if not misfits:
            return array
    return pa.array([_as_text(value) for value in values], pa.string())


def _note(misfits: list[str], _row: int, message: str) -> None:
    misfits.append(message)


def _to_integer(value: Any) -> Any:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_IN_DOUBLE
    return int(value) if is_whole else value


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else orjson.dumps(value).decode()


def label_array(values: Sequence[Any], basis: Basis) -> pa.Array:
    """Return labels as a column of their type, or as text if the types are mixed."""
    if basis.task == MULTI_LABEL:
        sets = [None if value is None else set_of(value) for value in values]
        return pa.array(
            [None if item is None else sorted(item) for item in sets], pa.list_(pa.string())
        )
    kind = basis.label_type or _type_of([value for value in values if value is not None])
    if kind == NUMBER:
        numbers = [number_of(value) for value in values]
        if _all_converted(values, numbers):
            return pa.array(numbers, pa.float64())
    if kind in (BOOLEAN, INTEGER):
        names = [canonical(value, kind) for value in values]
        if _all_converted(values, names) and kind == BOOLEAN:
            return pa.array([name and name == "true" for name in names], pa.bool_())
        wholes = [None if name is None else int(name) for name in names] if kind == INTEGER else []
        if (
            wholes
            and _all_converted(values, wholes)
            and all(n is None or n in _INT64 for n in wholes)
        ):
            return pa.array(wholes, pa.int64())
    return pa.array([name_of(value) for value in values], pa.string())


def _all_converted(values: Sequence[Any], converted: Sequence[Any]) -> bool:
    return all(b is not None for a, b in zip(values, converted, strict=True) if a is not None)


def _type_of(values: Sequence[Any]) -> str:
    for kind, types in ((BOOLEAN, (bool,)), (INTEGER, (int,)), (NUMBER, (int, float))):
        if values and all(type(value) in types for value in values):
            return kind
    return STRING
