"""Exact values of large integers in single predictions, which flat files store as doubles."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

import structlog

from portal.endpoints.models import Endpoint
from portal.monitoring.analyst import AnalysisFailed, analyst
from portal.monitoring.paths import raw_files_of
from portal.monitoring.signature_types import column_types, signatures_of

log = structlog.get_logger(__name__)
# Every integer below this is exact as a double.
_EXACT: Final = 2**53


class _Row(Protocol):
    @property
    def prediction_id(self) -> str: ...
    @property
    def row(self) -> int: ...
    @property
    def inputs(self) -> dict[str, Any]: ...


Row = TypeVar("Row", bound=_Row)


def restore_exact_integers(endpoint: Endpoint, rows: Sequence[Row]) -> list[Row]:
    """Return rows with large integers as they were sent, read from the bodies.

    Rows without such numbers cost nothing. If the bodies are deleted, the doubles remain.
    """
    rounded = [row for row in rows if any(map(_is_rounded, row.inputs.values()))]
    if not rounded:
        return list(rows)
    try:
        with analyst() as process:
            sent = process.request(
                "sent_inputs",
                raw=raw_files_of(endpoint.pk, {row.prediction_id for row in rounded}),
                rows=[(row.prediction_id, row.row) for row in rounded],
                signatures=signatures_of(endpoint),
                types=column_types(endpoint),
            )
    except AnalysisFailed as error:
        log.warning("inputs_not_read", endpoint=endpoint.pk, reason=str(error))
        return list(rows)
    exact = {
        (row.prediction_id, row.row): _exact(row.inputs, inputs)
        for row, inputs in zip(rounded, sent, strict=True)
    }
    return [
        replace(row, inputs=exact.get((row.prediction_id, row.row), row.inputs))  # type: ignore[type-var]
        for row in rows
    ]


def _is_rounded(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer() and abs(value) >= _EXACT


def _exact(shown: Mapping[str, Any], sent: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: sent[name] if _is_rounded(value) and _equals_integer(sent.get(name), value) else value
        for name, value in shown.items()
    }


def _equals_integer(sent: Any, shown: float) -> bool:
    return isinstance(sent, int) and not isinstance(sent, bool) and float(sent) == shown
