"""Exports of captured predictions as CSV or JSON lines, streamed while they are written."""

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from portal.core.errors import Unavailable
from portal.core.streams import ByteStream, release_connection
from portal.endpoints.models import Endpoint
from portal.monitoring.adapters.parquet import ANY, FAILED, FALLBACK, Flat, ParquetConditions
from portal.monitoring.analyst import AnalysisFailed, Analyst, analyst
from portal.monitoring.exports_and_erasure import merge_lock
from portal.monitoring.models import Erasure, Monitor
from portal.monitoring.paths import raw_files_of
from portal.monitoring.prediction_search import condition, labels_of, retry_if_replaced
from portal.monitoring.signature_types import column_types, signatures_of
from slipway.schemas.monitoring import ExportFormat, SelectionFilters

log = structlog.get_logger(__name__)
_ROWS_AT_ONCE: Final = 5_000
_BYTES_AT_ONCE: Final = 256 * 1024
# Processes that write parts of exports.
_AT_ONCE: Final = 2
_PATIENCE_S: Final = 120.0
_TRY_AGAIN_S: Final = 10
_MOMENT: Final = timedelta(microseconds=1)
_COLUMNS: Final = (
    *("prediction_id", "row", "at", "revision", "model_version", "key_id", "own_id"),
    *("latency_us", FAILED, FALLBACK),
)
_FACTS: Final = ("prediction_id", "row", "at", "revision", "model_version", "caller", "own_id")
_ANSWERS: Final = ("latency_ms", "status", "is_fallback")
_MOST_NAMES: Final = 2_000
_ELEMENT: Final = re.compile(r"\[\d+\]\Z")
_KINDS: Final = {"csv": "text/csv; charset=utf-8", "jsonl": "application/jsonl"}
_turns = threading.BoundedSemaphore(_AT_ONCE)
Row = dict[str, Any]


@dataclass(frozen=True)
class _Counts:
    """Number of matching rows: those in the file, and those left out because of erasures."""

    rows: int
    erased: int


@contextmanager
def export_slot(process: Analyst) -> Iterator[None]:
    """Reserve a slot to run a process for a part of an export. Slow clients hold none.

    Raises Unavailable if all slots stay taken for 120 seconds.
    """
    if not _turns.acquire(timeout=_PATIENCE_S):
        raise Unavailable("Too many exports are running.", retry_after_s=_TRY_AGAIN_S)
    try:
        yield
    finally:
        process.close()
        _turns.release()


class PredictionExport:
    """The bytes of an export. Iterate once."""

    def __init__(
        self, endpoint: Endpoint, filters: SelectionFilters, file_format: ExportFormat
    ) -> None:
        """Count the matching rows."""
        self._endpoint = endpoint
        self._filters = filters
        self._format = file_format
        self._erasures = list(Erasure.objects.filter(endpoint=endpoint, done_at=None))
        counts = self._counts()
        self.rows, self.erased = counts.rows, counts.erased

    def __iter__(self) -> Iterator[bytes]:
        numbers = dict(self._endpoint.revisions.values_list("pk", "number"))
        inputs, outputs = _column_names(self._endpoint)
        details = {
            "file_format": self._format,
            "inputs": inputs,
            "outputs": outputs,
            "signatures": signatures_of(self._endpoint),
            "types": column_types(self._endpoint),
        }
        with analyst() as process:
            if self._format == "csv":
                names = {"details": [*_FACTS, *_ANSWERS], "inputs": inputs, "outputs": outputs}
                with export_slot(process):
                    header = process.request("csv_header", **names).encode()
                yield header
            for rows in self._pages():
                lines = [self._fact(row, numbers) for row in rows]
                self._add_labels(lines)
                release_connection()
                yield from self._write_lines(process, lines, details)

    def _counts(self) -> _Counts:
        rows = self._row_conditions()
        everything = condition(self._endpoint, self._filters, status=ANY)

        def ask(chosen: Flat) -> _Counts:
            count = chosen.count(rows)
            return _Counts(count, chosen.count(everything) - count if self._erasures else 0)

        return retry_if_replaced(self._endpoint, self._filters, ask)

    def _row_conditions(self) -> ParquetConditions:
        """Return the filters, without predictions that have a pending erasure."""
        where = condition(self._endpoint, self._filters, status=ANY)
        own = [erasure.reference for erasure in self._erasures if erasure.is_own]
        ids = [erasure.reference for erasure in self._erasures if not erasure.is_own]
        return where.not_in("own_id", own).not_in("prediction_id", ids)

    def _pages(self) -> Iterator[list[Row]]:
        """Yield the rows that match, newest first."""
        last: Row | None = None
        while True:
            where, span = self._row_conditions(), self._filters
            if last is not None:
                where.after_row(last["at"], last["prediction_id"], last["row"])
                # Later hours need not be read again.
                span = span.model_copy(update={"until": last["at"] + _MOMENT})
            rows = retry_if_replaced(self._endpoint, span, partial(_find, where))
            if rows:
                yield rows
            if len(rows) < _ROWS_AT_ONCE:
                return
            last = rows[-1]

    @staticmethod
    def _fact(row: Row, numbers: dict[str, int]) -> Row:
        return {
            "prediction_id": row["prediction_id"],
            "row": row["row"],
            "at": _text_of(row["at"]),
            "revision": numbers.get(row["revision"] or ""),
            "model_version": row["model_version"] or "",
            "caller": row["key_id"] or "",
            "own_id": row["own_id"] or "",
            "latency_ms": row["latency_us"] / 1000,
            "status": row[FAILED] or 200,
            "is_fallback": bool(row[FALLBACK]),
            "label": None,
        }

    def _add_labels(self, lines: Sequence[Row]) -> None:
        """Add labels as JSON text, because the process accepts no integers above 64 bits."""
        labels = labels_of(self._endpoint, sorted({line["prediction_id"] for line in lines}))
        for line in lines:
            label = labels.get((line["prediction_id"], line["row"]))
            if label is not None:
                line["label"] = json.dumps(label, ensure_ascii=False)

    def _write_lines(
        self, process: Analyst, lines: Sequence[Row], details: dict[str, Any]
    ) -> Iterator[bytes]:
        """Yield some lines. After a failure, such as a lack of memory, retry with halves."""
        target = Path(process.folder) / "lines"
        done = 0
        while done < len(lines):
            rest = lines[done:]
            try:
                with export_slot(process), merge_lock():
                    raw = raw_files_of(self._endpoint.pk, {line["prediction_id"] for line in rest})
                    done += process.request(
                        "write_lines", rows=rest, raw=raw, target=str(target), **details
                    )
            except AnalysisFailed as error:
                if len(rest) == 1:
                    log.warning("export_failed", endpoint=self._endpoint.pk, reason=str(error))
                    raise
                middle = len(rest) // 2
                yield from self._write_lines(process, rest[:middle], details)
                yield from self._write_lines(process, rest[middle:], details)
                return
            yield from pieces_of(target)


def export_answer(
    endpoint: Endpoint, filters: SelectionFilters, file_format: ExportFormat
) -> ByteStream:
    """Return an export as a streaming download."""
    export = PredictionExport(endpoint, filters, file_format)
    return download(export, f"{endpoint.name}-predictions", file_format)


class _Export(Protocol):
    rows: int
    erased: int

    def __iter__(self) -> Iterator[bytes]: ...


def download(export: _Export, name: str, file_format: ExportFormat) -> ByteStream:
    """Return an export as a response, with the numbers of its rows and of those left out."""
    answer = ByteStream(export, content_type=_KINDS[file_format])
    answer.headers["Cache-Control"] = "private, no-store"
    answer.headers["Content-Disposition"] = f'attachment; filename="{name}.{file_format}"'
    answer.headers["X-Slipway-Rows"] = str(export.rows)
    answer.headers["X-Slipway-Rows-Left-Out"] = str(export.erased)
    return answer


def pieces_of(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file."""
    with path.open("rb") as file:
        while piece := file.read(_BYTES_AT_ONCE):
            yield piece


def _find(where: ParquetConditions, chosen: Flat) -> list[Row]:
    return chosen.find(where, limit=_ROWS_AT_ONCE, columns=_COLUMNS)


def _column_names(endpoint: Endpoint) -> tuple[list[str], list[str]]:
    """Return the CSV columns of inputs and outputs: of signatures, else those seen so far."""
    inputs: dict[str, None] = {}
    outputs: dict[str, None] = {"prediction": None}
    for revision in endpoint.revisions.order_by("number").defer("served"):
        signature = revision.signature or {}
        inputs |= {str(column["name"]): None for column in signature.get("inputs") or []}
        outputs |= {str(column["name"]): None for column in signature.get("outputs") or []}
    if not inputs:
        monitored = Monitor.objects.filter(endpoint=endpoint).values_list("columns", flat=True)
        names = [name for name in monitored.first() or () if not _ELEMENT.search(name)]
        inputs = dict.fromkeys(name[3:] for name in names[:_MOST_NAMES] if name.startswith("in."))
    return list(inputs), list(outputs)


def _text_of(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
