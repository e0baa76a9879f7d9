"""Flattens captured predictions into tables with one column for each feature.

A part is one Parquet file of rows in the order of `draw`, a number from 0 to 65,535 derived from
the prediction's id. So a sample of a given size is read from the beginning of each file. Parts
appear atomically under names that are never used again, and a prediction that is in an earlier part
of the hour is skipped: repeating a request changes nothing.

Failed predictions are included with their status and without outputs. Only answered ones determine
the columns, so that refused requests neither add nor change a column.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from portal.monitoring.analysis.rows import (
    IN,
    MOST_ROWS,
    OUT,
    Row,
    SignatureColumns,
    Unreadable,
    is_too_large,
    limited,
    request_rows,
    response_rows,
)
from portal.monitoring.statistics.tasks import name_of

DRAWS: Final = 65_536
_ROWS_A_PART: Final = 50_000
_ROWS_A_GROUP: Final = 8_192
# A sample reads the first rows of each part. Long pages would have to be unpacked as a whole.
_ROWS_A_PAGE: Final = 512
_BYTES_A_PAGE: Final = 8_192
_RAW: Final = [
    *("prediction_id", "answered_at", "revision", "model_version", "key_id", "latency_us"),
    *("is_shadow", "is_fallback", "request", "response", "status"),
]
# The status a prediction failed with, or null for an answered one. Older files lack it.
FAILED: Final = "failed_status"
_ANSWERED: Final = 200
FACTS: Final = pa.schema(
    [
        ("prediction_id", pa.string()),
        ("row", pa.int32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("revision", pa.string()),
        ("model_version", pa.string()),
        ("key_id", pa.string()),
        ("own_id", pa.string()),
        ("latency_us", pa.int64()),
        ("is_shadow", pa.bool_()),
        ("is_fallback", pa.bool_()),
        ("draw", pa.int32()),
        (FAILED, pa.int16()),
    ]
)
NUMBER: Final = "number"
TEXT: Final = "text"
Columns = dict[str, str]


def sampling_number(prediction_id: str) -> int:
    """Return the sampling number of a prediction."""
    return int.from_bytes(hashlib.blake2b(prediction_id.encode(), digest_size=2).digest())


def digest(
    *,
    sources: Sequence[str],
    folder: str,
    stem: str,
    parts: Sequence[str],
    signatures: Mapping[str, Any],
    columns: Columns,
) -> dict[str, Any]:
    """Add the predictions of raw files to the parts of an hour. Returns the new state.

    `signatures` are those of revisions. `columns` are the types of columns known so far.
    """
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    known = _known_predictions([target / name for name in parts])
    named = {revision: SignatureColumns.of(value) for revision, value in signatures.items()}
    made: list[str] = []
    unreadable = shortened = 0
    rows: list[Row] = []
    for raw in _raw_rows(sources):
        key = (raw["prediction_id"], raw["is_shadow"])
        if key in known:
            continue
        known.add(key)
        records, is_read, is_whole = _flattened(
            raw, named.get(raw["revision"] or "", SignatureColumns())
        )
        unreadable += not is_read
        shortened += not is_whole
        rows += records
        if len(rows) >= _ROWS_A_PART:
            made.append(_write_part(rows, target, f"{stem}-{len(made):04d}.parquet", columns))
            rows = []
    if rows:
        made.append(_write_part(rows, target, f"{stem}-{len(made):04d}.parquet", columns))
    return {
        "parts": [*parts, *made],
        "columns": columns,
        "unreadable": unreadable,
        "shortened": shortened,
    }


def _known_predictions(files: Iterable[Path]) -> set[tuple[str, bool]]:
    result: set[tuple[str, bool]] = set()
    for file in files:
        table = pq.read_table(file, columns=["prediction_id", "is_shadow"])
        result.update(
            zip(
                table.column("prediction_id").to_pylist(),
                table.column("is_shadow").to_pylist(),
                strict=True,
            )
        )
    return result


def _raw_rows(sources: Sequence[str]) -> Iterator[Row]:
    for source in sources:
        try:
            file = pq.ParquetFile(source)
        except FileNotFoundError:
            continue  # merged into another file, which the next request includes
        with file:
            for batch in file.iter_batches(batch_size=2_000, columns=_RAW):
                yield from batch.to_pylist()


def _flattened(raw: Row, named: SignatureColumns) -> tuple[list[Row], bool, bool]:
    """Return the rows of one prediction, whether both bodies were readable, and complete."""
    details = {
        "prediction_id": raw["prediction_id"],
        "at": raw["answered_at"],
        "revision": raw["revision"],
        "model_version": raw["model_version"],
        "key_id": raw["key_id"],
        "own_id": "",
        "latency_us": raw["latency_us"],
        "is_shadow": raw["is_shadow"],
        "is_fallback": bool(raw.get("is_fallback")),
        "draw": sampling_number(raw["prediction_id"]),
        FAILED: None,
    }
    status = raw.get("status") or _ANSWERED
    is_read = True
    try:
        requested, details["own_id"] = request_rows(raw["request"] or "", named)
    except (Unreadable, RecursionError):
        requested, is_read = [], False
    records: list[Row] = []
    if status != _ANSWERED:
        details[FAILED], is_read = status, True  # an unreadable input may have caused the failure
    else:
        try:
            records = response_rows(raw["response"] or "")
        except (Unreadable, RecursionError):
            is_read = False
    rows = []
    for at in range(min(MOST_ROWS, max(1, len(requested), len(records)))):
        inputs = limited(requested[at]) if at < len(requested) else {}
        outputs = limited(records[at]) if at < len(records) else {}
        rows.append(
            details
            | {"row": at}
            | {IN + name: value for name, value in inputs.items()}
            | {OUT + name: value for name, value in outputs.items()}
        )
    return rows, is_read, not (is_too_large(requested) or is_too_large(records))


def _write_part(rows: list[Row], folder: Path, name: str, columns: Columns) -> str:
    rows.sort(key=lambda row: row["draw"])
    values: defaultdict[str, list[Any]] = defaultdict(lambda: [None] * len(rows))
    answered = [row for row in rows if row[FAILED] is None]
    kept = set(columns).union(*answered).difference(FACTS.names)
    for at, row in enumerate(rows):
        for key, value in row.items():
            if key in kept:
                values[key][at] = value
    arrays = [pa.array([row[fact.name] for row in rows], fact.type) for fact in FACTS]
    names = list(FACTS.names)
    for key in sorted(values):
        if key not in columns:
            columns[key] = _kind_of([row.get(key) for row in answered])
        arrays.append(_array(values[key], columns[key]))
        names.append(key)
    write_whole(pa.Table.from_arrays(arrays, names=names), folder / name)
    return name


def _kind_of(values: Sequence[Any]) -> str:
    is_number = any(
        isinstance(value, int | float) and not isinstance(value, bool) for value in values
    )
    return NUMBER if is_number else TEXT


def _array(values: Sequence[Any], kind: str) -> pa.Array:
    if kind == NUMBER:
        return pa.array([_as_number(value) for value in values], pa.float64())
    return pa.array([_as_text(value) for value in values], pa.string())


def _as_number(value: Any) -> float | None:
    if isinstance(value, bool | int | float):
        return float(value)
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) else name_of(value)


def write_whole(table: pa.Table, path: Path) -> None:
    """Write a table atomically: it appears complete under its name or not at all."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        pq.write_table(
            table,
            draft,
            compression="lz4",
            use_dictionary=[item.name for item in table.schema if pa.types.is_string(item.type)],
            row_group_size=_ROWS_A_GROUP,
            data_page_size=_BYTES_A_PAGE,
            write_batch_size=_ROWS_A_PAGE,
        )
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def close(*, folder: str, parts: Sequence[str], name: str) -> dict[str, Any]:
    """Merge the parts of a finished hour into one. The caller removes the old ones."""
    target = Path(folder)
    if len(parts) < 2:
        return {"parts": list(parts)}
    tables = [pq.read_table(target / part) for part in parts]
    whole = pa.concat_tables(tables, promote_options="permissive")
    write_whole(whole.sort_by("draw"), target / name)
    return {"parts": [name]}


def iso(timestamp: datetime) -> str:
    """Return a timestamp in the format of requests."""
    return timestamp.isoformat()
