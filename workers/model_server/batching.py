"""Proof that requests may be merged: golden rows are predicted alone, together, and beside others.

A model is row-wise if no row changes the output for another. The format does not reveal that: a
module may normalise over its batch, rank, or hold state. So the model itself is tested, here, where
its code is allowed to run. A single difference beyond the recorded tolerance refutes it.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from slipway.schemas.serving import BatchingMode, BatchingReport, BatchingVerdict, GoldenPrediction
from slipway.schemas.truncation import shorten
from workers.model_server.codecs import Batch, Model
from workers.model_server.engine import Engine
from workers.model_server.golden import first_difference
from workers.model_server.predictions import UnevenOutputs, cut, write_scoring
from workers.serving.wire import Contract, RequestFrame

_MOST_ROWS: Final = 32
_MOST_NULLED: Final = 16
_MOST_STRANGERS: Final = 24
# Time limits of predicting rows alone, and of one merged call if its time grows with its rows.
_ALONE_S: Final = 2.0
_CALL_S: Final = 2.0
_WITHIN_S: Final = 30.0
# The first groups ("companies") of each kind are always tried. Slow models skip the others.
_ESSENTIAL: Final = 5
_ENOUGH_S: Final = 1.0
_SHUFFLES: Final = 4
_TIMED: Final = 3
# Integer factors, so that integers remain integers.
_FACTORS: Final = (-1, 0, 3, 1000)
_TEXT_TIMES: Final = 8
_MORE_GOLDEN: Final = (
    "Record golden rows with slipway.register(…, golden=…), or declare `batching`."
)


class _Counterexample(Exception):
    """A counterexample against merging. The message describes it."""


class _Inconclusive(Exception):
    """No proof either way. The message gives the reason."""


class _Subject(NamedTuple):
    """A row whose answer has to be the same in every company."""

    name: str
    body: bytes
    alone: Any
    tolerance: GoldenPrediction


@dataclass
class _Times:
    """The shortest time of a row predicted alone, and of a row in a full batch."""

    single_s: float | None = None
    merged_s: float | None = None
    rows: int | None = None

    def record_single(self, seconds: float) -> None:
        self.single_s = min(seconds, self.single_s or seconds)

    def record_merged(self, seconds: float, rows: int) -> None:
        if rows >= (self.rows or 0):
            self.merged_s = min(seconds / rows, self.merged_s or seconds)
            self.rows = rows

    def fields(self) -> dict[str, Any]:
        """Return them as a report has them."""
        if self.single_s is None or self.merged_s is None:
            return {}
        return {
            "alone_us": self.single_s * 1e6,
            "merged_us": self.merged_s * 1e6,
            "merged_rows": self.rows,
        }


@dataclass
class Proof:
    """The result of asking. The model `has_changed` when it now answers golden rows differently."""

    verdict: BatchingVerdict
    reason: str
    max_rows: int
    has_changed: bool = False
    times: _Times = field(default_factory=_Times)


def report_of(proof: Proof | None, stated: BatchingMode | None) -> BatchingReport:
    """Return the mode to work in. An example against merging outweighs a statement for it."""
    if proof is None:
        assert stated is not None  # noqa: S101  (only a statement spares the proof)
        reason = f"Its author declared {stated.value}."
        return BatchingReport(mode=stated, verdict=BatchingVerdict.UNPROVED, reason=reason)
    merges = proof.verdict is BatchingVerdict.PROVED or (
        proof.verdict is BatchingVerdict.UNPROVED and stated is BatchingMode.ROWS
    )
    reason = proof.reason
    if stated is BatchingMode.ROWS and proof.verdict is not BatchingVerdict.PROVED:
        reason = f"Its author declared rows. {reason}"
    return BatchingReport(
        mode=BatchingMode.ROWS if merges else BatchingMode.REQUESTS,
        verdict=proof.verdict,
        reason=shorten(" ".join(reason.split()), 1000),
        **proof.times.fields(),
    )


def needs_proof(stated: BatchingMode | None) -> bool:
    """Return whether batching has to be proved. A model that is never batched needs no proof."""
    return stated in (None, BatchingMode.ROWS)


def prove(
    engine: Engine, model: Model, golden: Sequence[GoldenPrediction], *, max_rows: int
) -> Proof:
    """Predict golden rows in all combinations. `engine` must not merge requests itself."""
    prover = _Prover(engine, model, max_rows)
    try:
        prover.run(golden)
    except _Counterexample as error:
        verdict, reason = BatchingVerdict.REFUTED, str(error)
    except _Inconclusive as error:
        verdict, reason = BatchingVerdict.UNPROVED, str(error)
    else:
        verdict = BatchingVerdict.PROVED
        reason = (
            f"{prover.compared} rows gave the same predictions alone, together, in a different "
            f"order and beside other rows, up to {prover.max_rows} in a call."
        )
    has_changed = verdict is not BatchingVerdict.UNPROVED and prover.has_changed()
    if has_changed and verdict is BatchingVerdict.PROVED:
        verdict = BatchingVerdict.REFUTED
        reason = "After other rows were predicted, golden rows give different predictions."
    return Proof(verdict, reason, prover.max_rows, has_changed, prover.times)


class _Prover:
    def __init__(self, engine: Engine, model: Model, max_rows: int) -> None:
        self.max_rows = max_rows
        self.times = _Times()
        self.compared = 0
        self._engine = engine
        self._model = model
        self._chance = random.Random(2)  # noqa: S311  (not a secret, but reproducible)
        self._deadline = time.monotonic() + _WITHIN_S
        self._golden: list[_Subject] = []

    def run(self, golden: Sequence[GoldenPrediction]) -> None:
        """Raise _Refuted or _Unproved unless the rows are answered alike in every company."""
        if self.max_rows < 2:
            raise _Inconclusive("A call has at most one row.")
        rows = [(row, subject) for subject in golden for row in single_rows(subject.request)]
        if not rows:
            raise _Inconclusive(f"No golden rows are recorded. {_MORE_GOLDEN}")
        self._golden = self._predict_golden(rows)
        subjects = [*self._golden, *self._relatives([row for row, _ in rows], rows[0][1])]
        strangers = self._strangers([row for row, _ in rows])
        if len({subject.body for subject in subjects} | set(strangers)) < 2:
            raise _Inconclusive(
                f"There is only one golden row, and the model accepts no other. {_MORE_GOLDEN}"
            )
        self.compared = len(subjects)
        began = time.monotonic()
        for at, company in enumerate(self._companies(subjects, strangers)):
            if at >= _ESSENTIAL and time.monotonic() - began > _ENOUGH_S:
                break
            self._compare(company)

    def has_changed(self) -> bool:
        """Return whether the golden rows are answered differently now."""
        return any(self._differs(subject, self._answer(subject.body)) for subject in self._golden)

    def _predict_golden(
        self, rows: Sequence[tuple[dict[str, Any], GoldenPrediction]]
    ) -> list[_Subject]:
        subjects: list[_Subject] = []
        for number, (row, tolerance) in enumerate(rows[:_MOST_ROWS], start=1):
            body = orjson.dumps(row)
            answers = [self._answer(body), self._answer(body)]
            if answers[0] is None or answers[1] is None:
                raise _Counterexample(
                    f"Golden row {number} is rejected when it is predicted alone."
                )
            subject = _Subject(f"golden row {number}", body, answers[0], tolerance)
            if difference := self._differs(subject, answers[1]):
                raise _Counterexample(
                    f"Predicted alone twice, golden row {number} differs: {difference}."
                )
            subjects.append(subject)
            if len(subjects) > 1 and len(subjects) * (self.times.single_s or 0) > _ALONE_S / 2:
                break
        alone_s = self.times.single_s or 0.0
        if alone_s * self.max_rows > _CALL_S:
            self.max_rows = max(2, int(_CALL_S / alone_s))
        return subjects

    def _relatives(
        self, rows: Sequence[dict[str, Any]], tolerance: GoldenPrediction
    ) -> Iterator[_Subject]:
        """Yield rows like the golden ones, which the model takes: blends, and a value missing."""
        few = rows[: len(self._golden)]
        made = [blend(item, other) for item, other in zip(few, [*few[1:], few[0]], strict=True)]
        missing = [lacking for row in few[:2] for lacking in without_values(row)]
        for row in [*made, *missing[:_MOST_NULLED]]:
            if self._is_past_share(share=0.3):
                return
            body = orjson.dumps(row)
            alone = self._answer(body)
            if alone is not None:
                yield _Subject("a row like the golden ones", body, alone, tolerance)

    def _strangers(self, rows: Sequence[dict[str, Any]]) -> list[bytes]:
        """Return other rows that the model accepts. Their predictions are not compared."""
        strangers: list[bytes] = []
        for row in rows[:_MOST_ROWS]:
            # Alternate numbers and texts, because a model may refuse unknown texts.
            for other in [*(scaled(row, factor) for factor in _FACTORS), lengthened(row)]:
                if len(strangers) == _MOST_STRANGERS or self._is_past_share(share=0.4):
                    return strangers
                body = orjson.dumps(other)
                if self._answer(body) is not None:
                    strangers.append(body)
        return strangers

    def _companies(
        self, subjects: Sequence[_Subject], strangers: Sequence[bytes]
    ) -> Iterator[list[_Subject | bytes]]:
        """Yield what is merged into one call each: one of each kind first, full ones before."""
        others: list[_Subject | bytes] = [*strangers, *subjects]
        yield self._shuffled(subjects, others, 0)
        together: list[_Subject | bytes] = [*subjects[: self.max_rows]]
        yield together
        yield together[::-1]
        yield self._padded(subjects, others, 0)
        yield [subjects[0], others[0]]
        for start in range(1, _SHUFFLES):
            yield self._shuffled(subjects, others, start)
            yield self._padded(subjects, others, start)
        for subject, other in zip(subjects[1:], others[1:], strict=False):
            yield [subject, other]

    def _shuffled(
        self, subjects: Sequence[_Subject], others: Sequence[_Subject | bytes], start: int
    ) -> list[_Subject | bytes]:
        """Return a full call of some subjects among others."""
        chosen = self._pick_subjects(subjects, start, max(1, self.max_rows * 2 // 3))
        while len(chosen) < self.max_rows:
            chosen.append(self._chance.choice(others))
        self._chance.shuffle(chosen)
        return chosen

    def _padded(
        self, subjects: Sequence[_Subject], others: Sequence[_Subject | bytes], at: int
    ) -> list[_Subject | bytes]:
        """Return a full call of one subject and one other row again and again."""
        subject = subjects[at % len(subjects)]
        padding: list[_Subject | bytes] = [others[at % len(others)]] * (self.max_rows - 1)
        return [subject, *padding] if at % 2 else [*padding, subject]

    def _pick_subjects(
        self, subjects: Sequence[_Subject], start: int, count: int
    ) -> list[_Subject | bytes]:
        """Return so many subjects, others in each shuffle, and each once at most."""
        turned: list[_Subject | bytes] = [*subjects[start * count % len(subjects) :], *subjects]
        return turned[: min(count, len(subjects))]

    def _compare(self, company: Sequence["_Subject | bytes"]) -> None:
        if self._is_past_share():
            raise _Inconclusive(
                f"The proof would have taken longer than {_WITHIN_S:.0f} s. Declare `batching` "
                "if you know that rows are independent."
            )
        bodies = [item.body if isinstance(item, _Subject) else item for item in company]
        answers = self._merged(bodies)
        if len(bodies) == self.max_rows and self.times.rows is None:
            self._time_merged()
        for item, answer in zip(company, answers, strict=True):
            if isinstance(item, _Subject) and (difference := self._differs(item, answer)):
                raise _Counterexample(
                    f"Beside other rows, {item.name} gives a different prediction: {difference}."
                )

    def _time_merged(self) -> None:
        """Measure a full call of golden rows, as clients would have it."""
        golden = [self._golden[at % len(self._golden)] for at in range(self.max_rows)]
        request_frame = [_scoring_frame(subject.body) for subject in golden]
        self._engine.set_batching(BatchingMode.ROWS, self.max_rows)
        for _ in range(_TIMED):
            began = time.perf_counter()
            self._engine.answer(request_frame)
            took_s = time.perf_counter() - began
            self.times.record_merged(took_s, len(request_frame))
            if took_s > _CALL_S / 10:
                break
        self._engine.set_batching(BatchingMode.REQUESTS, self.max_rows)

    def _merged(self, bodies: Sequence[bytes]) -> list[Any]:
        """Return the answers of requests that are merged as the engine would merge them."""
        batches = [self._model.codec.read(_scoring_frame(body)) for body in bodies]
        groups: dict[object, list[int]] = {}
        for place, batch in enumerate(batches):
            groups.setdefault(batch.key, []).append(place)
        answers: list[Any] = [None] * len(bodies)
        for places in groups.values():
            for place, answer in zip(places, self._call([batches[p] for p in places]), strict=True):
                answers[place] = answer
        return answers

    def _call(self, batches: Sequence[Batch]) -> list[Any]:
        try:
            joined = self._model.codec.join(batches)
            outputs = self._model.predict(joined, batches[0].params)
            pieces = cut(outputs, [batch.rows for batch in batches])
        except UnevenOutputs:
            raise _Counterexample("Its outputs do not have one row per input row.") from None
        except Exception as error:
            message = f"{type(error).__name__}: {error}"
            raise _Counterexample(
                f"It fails when rows are merged: {shorten(message, 400)}"
            ) from error
        return [orjson.loads(write_scoring(piece))["predictions"] for piece in pieces]

    def _answer(self, body: bytes) -> Any | None:
        """Return the predictions for a single request, or None if it is refused or fails."""
        began = time.perf_counter()
        answer = self._engine.answer([_scoring_frame(body)])[0]
        if answer.status != 200:
            return None
        self.times.record_single(time.perf_counter() - began)
        return orjson.loads(answer.body)["predictions"]

    def _differs(self, subject: _Subject, answer: Any) -> str:
        return first_difference(answer, subject.alone, subject.tolerance)

    def _is_past_share(self, *, share: float = 1.0) -> bool:
        return time.monotonic() > self._deadline - _WITHIN_S * (1 - share)


def _scoring_frame(body: bytes) -> RequestFrame:
    return RequestFrame(0, Contract.SCORING, 0, body)


def single_rows(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Split a body of `/invocations` into one per row. Return [] if the rows are unclear."""
    more = {"params": request["params"]} if "params" in request else {}
    for key in ("dataframe_records", "instances", "inputs"):
        rows = request.get(key)
        if isinstance(rows, list):
            return [{key: [row], **more} for row in rows]
    columns = request.get("inputs")
    if isinstance(columns, dict) and columns and all(map(_is_list, columns.values())):
        count = len(next(iter(columns.values())))
        if all(len(column) == count for column in columns.values()):
            return [
                {"inputs": {name: [column[at]] for name, column in columns.items()}, **more}
                for at in range(count)
            ]
    split = request.get("dataframe_split")
    if isinstance(split, dict) and _is_list(split.get("data")):
        rest = {"columns": split["columns"]} if "columns" in split else {}
        return [{"dataframe_split": {**rest, "data": [row]}, **more} for row in split["data"]]
    return []


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _in_row(request: dict[str, Any], change: Callable[[Any], Any]) -> dict[str, Any]:
    """Return a request of one row with its values changed, its columns and params as they were."""
    result = dict(request)
    split = request.get("dataframe_split")
    if split is not None:
        result["dataframe_split"] = {**split, "data": change(split["data"])}
        return result
    for key in ("dataframe_records", "instances", "inputs"):
        if key in request:
            result[key] = change(request[key])
    return result


def _values(request: dict[str, Any]) -> Any:
    """Return the values of a request of one row, nested as they are."""
    split = request.get("dataframe_split")
    if split is not None:
        return split["data"]
    return next(
        request[key] for key in ("dataframe_records", "instances", "inputs") if key in request
    )


def blend(request: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose values come from two rows in turns."""
    return _in_row(request, lambda values: _blended(values, _values(other)))


def _blended(item: Any, other: Any) -> Any:
    if isinstance(item, dict) and isinstance(other, dict):
        return {
            name: value if at % 2 else _blended(value, other.get(name, value))
            for at, (name, value) in enumerate(item.items())
        }
    if isinstance(item, list) and isinstance(other, list):
        if len(item) == 1 and len(other) == 1:
            return [_blended(item[0], other[0])]
        turns = zip(item, [*other, *item[len(other) :]], strict=False)
        return [result if at % 2 else theirs for at, (result, theirs) in enumerate(turns)]
    return other


def scaled(request: dict[str, Any], factor: int) -> dict[str, Any]:
    """Return a row whose numbers are multiplied."""

    def multiply(value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return value * factor if is_number else value

    return _in_row(request, lambda values: _mapped(values, multiply))


def lengthened(request: dict[str, Any]) -> dict[str, Any]:
    """Return a row whose texts are longer: those beside it are padded by some models."""
    return _in_row(
        request,
        lambda values: _mapped(
            values, lambda value: value * _TEXT_TIMES if isinstance(value, str) else value
        ),
    )


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _mapped(part, change) for name, part in value.items()}
    if isinstance(value, list):
        return [_mapped(part, change) for part in value]
    return change(value)


def without_values(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the row once for each of its columns, with that value missing."""
    values = _values(request)
    row = values[0] if isinstance(values, list) else values
    if isinstance(row, dict):
        names: Sequence[Any] = list(row)[:_MOST_NULLED]
    elif isinstance(row, list):
        names = range(min(len(row), _MOST_NULLED))
    else:
        return []
    result = []
    for name in names:
        lacking: Any = dict(row) if isinstance(row, dict) else list(row)
        lacking[name] = [None] if isinstance(values, dict) else None
        changed = [lacking] if isinstance(values, list) else lacking
        result.append(_in_row(request, lambda _, changed=changed: changed))  # type: ignore[misc]
    return result
