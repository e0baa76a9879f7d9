"""Predicts rows as a replica does: many in a call where the model allows it, else one by one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from slipway.schemas.serving import BatchingMode, GoldenPrediction
from slipway.schemas.truncation import shorten
from workers.batch_predictor.requests import BadRow, body_of
from workers.model_server.preparation import PreparedModel
from workers.serving.wire import Contract, RequestFrame

MAX_ROWS: Final = 256
_SAMPLES: Final = 32
_REASON_CHARACTERS: Final = 1000


@dataclass(frozen=True)
class RowResult:
    """The prediction of a row, or the reason why there is none."""

    prediction: Any = None
    error: str = ""


def sample_requests(rows: Any, columns: Sequence[str]) -> list[GoldenPrediction]:
    """Return requests of the first rows, each alone. They prove whether rows may be merged."""
    samples = []
    for at in range(min(_SAMPLES, rows.num_rows)):
        try:
            body = body_of(rows.slice(at, 1), columns)
        except BadRow:
            continue
        samples.append(GoldenPrediction(request=orjson.loads(body), predictions=None))
    return samples


class Predictor:
    """Predicts the rows of record batches with a prepared model."""

    def __init__(self, prepared: PreparedModel, columns: Sequence[str]) -> None:
        self._engine = prepared.engine
        self._columns = columns
        merges = prepared.batching.mode is BatchingMode.ROWS
        self.rows_per_call = prepared.max_rows if merges else 1
        self.has_infinities = False

    def predict(self, rows: Any) -> list[RowResult]:
        """Return a result for each row, in their order."""
        results: list[RowResult] = []
        for start in range(0, rows.num_rows, self.rows_per_call):
            results += self._predict_call(rows.slice(start, self.rows_per_call))
        return results

    def _predict_call(self, rows: Any) -> list[RowResult]:
        try:
            return [RowResult(value) for value in self._answer(rows)]
        except BadRow as error:
            if rows.num_rows == 1:
                return [RowResult(error=shorten(str(error), _REASON_CHARACTERS))]
        # One row is bad, or the model cannot take several: each is asked alone.
        singles = (rows.slice(at, 1) for at in range(rows.num_rows))
        return [result for row in singles for result in self._predict_call(row)]

    def _answer(self, rows: Any) -> list[Any]:
        """Return a prediction for each row. Raises BadRow."""
        frame = RequestFrame(0, Contract.SCORING, 0, body_of(rows, self._columns))
        answer = self._engine.answer([frame])[0]
        document = orjson.loads(answer.body)
        if answer.status != 200:
            raise BadRow(str(document.get("detail") or "The model refused the row."))
        self.has_infinities = self.has_infinities or bool(document.get("warnings"))
        return _split(document["predictions"], rows.num_rows)


def _split(predictions: Any, rows: int) -> list[Any]:
    """Return the predictions of each row. Raises BadRow for another number of them."""
    if isinstance(predictions, dict):
        columns = {name: _split(values, rows) for name, values in predictions.items()}
        return [{name: values[at] for name, values in columns.items()} for at in range(rows)]
    if not isinstance(predictions, list) or len(predictions) != rows:
        count = len(predictions) if isinstance(predictions, list) else 1
        raise BadRow(f"The model returned {count:,} predictions for {rows:,} rows.")
    return predictions
