"""Captured predictions as lines of JSON or CSV, with the values of the bodies as sent."""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from portal.monitoring.analysis.export import cell_of
from portal.monitoring.analysis.rows import (
    Row,
    SignatureColumns,
    Unreadable,
    csv_rows,
    rows_of,
    rows_of_body,
)

Format = Literal["csv", "jsonl"]
_ROWS_AT_ONCE: Final = 256
_MOST_BYTES: Final = 64 * 1024**2
_BODIES: Final = ["prediction_id", "revision", "is_shadow", "request", "response"]
# Numbers with fewer digits are represented exactly by the shortest form of their double.
_LONG_NUMBER: Final = re.compile(r"[0-9][0-9.]{14,}")
_INTEGERS: Final = range(-(2**63), 2**64)
_LONGEST_INTEGER: Final = 20


class _Body:
    """The two bodies of one prediction, read when the first of its rows is written."""

    def __init__(self, raw: Row, named: SignatureColumns, types: Mapping[str, str]) -> None:
        self.params: Any = None
        self.unreadable: dict[str, str] = {}
        self.inputs = self._inputs(raw["request"] or "", named, types)
        self.outputs = self._outputs(raw["response"] or "")

    def _inputs(self, text: str, named: SignatureColumns, types: Mapping[str, str]) -> list[Row]:
        try:
            try:
                body = parse_exactly(text)
            except orjson.JSONDecodeError:
                return csv_rows(text, named, cell_of(types))
            if not isinstance(body, dict):
                raise Unreadable
            self.params = body.get("params", body.get("parameters"))
            return rows_of_body(body, named, nested=True)
        except (Unreadable, RecursionError):
            self.unreadable["request"] = text
            return []

    def _outputs(self, text: str) -> list[Row]:
        if not text:
            return []
        try:
            body = parse_exactly(text)
            value = body.get("predictions", body.get("outputs")) if isinstance(body, dict) else None
            return rows_of(value, single="prediction", nested=True)
        except (Unreadable, RecursionError, orjson.JSONDecodeError):
            self.unreadable["response"] = text
            return []


def write_lines(
    *,
    rows: Sequence[Row],
    raw: Sequence[str],
    target: str,
    file_format: Format,
    inputs: Sequence[str],
    outputs: Sequence[str],
    signatures: Mapping[str, Any],
    types: Mapping[str, str],
) -> int:
    """Write rows of predictions with the bodies in raw files. Returns the number of rows done.

    It stops after 64 MiB.

    `inputs` and `outputs` are the columns of CSV, where other values are JSON in a column of their
    own. Rows whose bodies are in no file were erased meanwhile, and are left out.
    """
    named = {revision: SignatureColumns.of(signature) for revision, signature in signatures.items()}
    bodies: dict[str, _Body] = {}
    for item in _sent(raw, sorted({row["prediction_id"] for row in rows})):
        signature = named.get(item["revision"] or "", SignatureColumns())
        bodies[item["prediction_id"]] = _Body(item, signature, types)
    with Path(target).open("wb") as file:
        for done, row in enumerate(rows, 1):
            body = bodies.get(row["prediction_id"])
            if body is None:
                continue
            line = _line(row, body)
            if file_format == "jsonl":
                file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            else:
                file.write(csv_line(_cells(row, line, inputs, outputs)))
            if file.tell() >= _MOST_BYTES:
                return done
    return len(rows)


def csv_header(*, details: Sequence[str], inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """Return the header line of the CSV form. `details` are the columns of every prediction."""
    columns = [*details, *(f"in.{name}" for name in inputs), *(f"out.{name}" for name in outputs)]
    columns += ["other_inputs", "other_outputs", "params", "unreadable", "label"]
    return csv_line(columns).decode()


def table_facts(*, source: str, erased: Sequence[str]) -> dict[str, int]:
    """Count the rows of a selection, the erased ones among them, and its row groups."""
    with pq.ParquetFile(source) as file:
        ids = file.read(["slipway_prediction_id"]).column(0)
        left_out = pc.sum(pc.is_in(ids, pa.array(erased, pa.string()))).as_py() or 0
        return {"rows": len(ids) - left_out, "erased": left_out, "groups": file.num_row_groups}


def write_table(
    *, source: str, group: int, target: str, file_format: Format, erased: Sequence[str]
) -> None:
    """Write a row group of a selection, without erased rows."""
    with pq.ParquetFile(source) as file, Path(target).open("wb") as lines:
        if file_format == "csv" and not group:
            lines.write(csv_line(file.schema_arrow.names))
        for batch in file.iter_batches(_ROWS_AT_ONCE, [group]):
            is_erased = pc.is_in(
                batch.column("slipway_prediction_id"), pa.array(erased, pa.string())
            )
            for row in batch.filter(pc.invert(is_erased)).to_pylist():
                values = {name: _json_value(value) for name, value in row.items()}
                if file_format == "csv":
                    lines.write(csv_line(list(values.values())))
                else:
                    lines.write(orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE))


def _json_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items()}
    return value


def csv_line(cells: Sequence[Any]) -> bytes:
    """Return a line of CSV (RFC 4180): text is quoted, and a missing value is an empty cell.

    So `007` and the empty text differ from the number 7 and from a missing value.
    """
    return b",".join(map(_cell, cells)) + b"\r\n"


def _cell(value: Any) -> bytes:
    if value is None:
        return b""
    if isinstance(value, str):
        return _quoted(value)
    text: bytes = orjson.dumps(value)
    is_plain = isinstance(value, bool | int | float | orjson.Fragment)
    return text if is_plain else _quoted(text.decode())


def _quoted(text: str) -> bytes:
    return b'"' + text.replace('"', '""').encode() + b'"'


def _sent(raw: Sequence[str], ids: Sequence[str]) -> Iterator[Row]:
    """Yield the bodies of predictions. Row groups without any of them are not read."""
    seen: set[str] = set()
    chosen = pa.array(ids, pa.string())
    for path in raw:
        with pq.ParquetFile(path) as file:
            groups = [at for at in range(file.num_row_groups) if _may_hold(file, at, ids)]
            for batch in file.iter_batches(_ROWS_AT_ONCE, groups, columns=_BODIES):
                for item in batch.filter(
                    pc.is_in(batch.column("prediction_id"), chosen)
                ).to_pylist():
                    if not item["is_shadow"] and item["prediction_id"] not in seen:
                        seen.add(item["prediction_id"])
                        yield item


def _may_hold(file: pq.ParquetFile, group: int, ids: Sequence[str]) -> bool:
    column = file.schema_arrow.get_field_index("prediction_id")
    statistics = file.metadata.row_group(group).column(column).statistics
    if statistics is None or not statistics.has_min_max:
        return True
    return bool(statistics.min <= ids[-1] and statistics.max >= ids[0])


def parse_exactly(text: str) -> Any:
    """Return JSON in which each number has all digits of the text. Raises JSONDecodeError."""
    body = orjson.loads(text)
    if _LONG_NUMBER.search(text):
        return json.loads(text, parse_int=_integer, parse_float=_real)
    return body


def _integer(text: str) -> Any:
    # `-0` is an integer that has no sign in Python.
    is_exact = len(text) <= _LONGEST_INTEGER and text != "-0" and int(text) in _INTEGERS
    return int(text) if is_exact else orjson.Fragment(text)


def _real(text: str) -> Any:
    value = float(text)
    return value if Decimal(repr(value)) == Decimal(text) else orjson.Fragment(text)


def _line(row: Row, body: _Body) -> Row:
    at = row["row"]
    line = {name: value for name, value in row.items() if name != "label"}
    line["inputs"] = body.inputs[at] if at < len(body.inputs) else {}
    line["outputs"] = body.outputs[at] if at < len(body.outputs) else {}
    line["label"] = None if row["label"] is None else orjson.Fragment(row["label"])
    if body.params is not None:
        line["params"] = body.params
    if body.unreadable:
        line["unreadable"] = body.unreadable
    return line


def _cells(row: Row, line: Row, inputs: Sequence[str], outputs: Sequence[str]) -> list[Any]:
    given, answered = dict(line["inputs"]), dict(line["outputs"])
    cells = [value for name, value in row.items() if name != "label"]
    cells += [given.pop(name, None) for name in inputs]
    cells += [answered.pop(name, None) for name in outputs]
    cells += [given or None, answered or None, line.get("params"), line.get("unreadable")]
    return [*cells, None if row["label"] is None else parse_exactly(row["label"])]
