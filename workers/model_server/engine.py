"""Micro-batches: what waits together is predicted together, and nothing waits to be joined.

Requests that arrived in one turn of the event loop make a batch. A model that takes longer than a
millisecond runs in a thread beside the loop, and what arrives meanwhile makes the next batch: an
idle replica answers at once, a busy one batches by itself. Rows of different requests meet in one
call of the model only in the mode `rows`.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import numpy as np

from slipway.schemas.serving import BatchingMode
from workers.model_server.arrays import by_name
from workers.model_server.codecs import Batch, Model
from workers.model_server.errors import BadInput, one_line
from workers.model_server.infer import write_infer
from workers.model_server.predictions import cut, write_rows, write_scoring
from workers.serving.problem import problem_body
from workers.serving.wire import Content, RequestFrame, ResponseFrame, new

INLINE_BELOW_MS: Final = 1.0
# Unmerged requests are collected for this long, to share one switch to the thread and back. The
# first response waits for the last one.
_TURN_MS: Final = 2.0
_LEARNING_RATE: Final = 0.05
_JSON: Final = int(Content.JSON)
Reply = Callable[[list[ResponseFrame]], None]


class QueuedRequest(NamedTuple):
    """A request, whom to answer, and when it came."""

    frame: RequestFrame
    reply: Reply
    since: float


class Engine:
    """Runs predictions. `submit` and the replies belong to the event loop."""

    def __init__(
        self,
        model: Model,
        *,
        name: str,
        version: str,
        max_rows: int,
        batching: BatchingMode = BatchingMode.REQUESTS,
    ) -> None:
        self._model = model
        self._read_many = getattr(model.codec, "read_many", None)
        self._predict_row: Callable[[RequestFrame], Any] | None = getattr(
            model, "predict_row", None
        )
        self._name = name
        self._version = version
        self._max_rows = max_rows
        self._batching = batching
        self._queue: list[QueuedRequest] = []
        self._scheduled = False
        self._busy = False
        self._can_join = True
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="model")
        self.forward_ms = 0.0

    def set_batching(self, mode: BatchingMode, max_rows: int) -> None:
        """Work in this mode from now on, with at most so many rows in a merged call."""
        self._batching, self._max_rows = mode, max_rows

    @property
    def is_idle(self) -> bool:
        """True if nothing waits and nothing runs."""
        return not self._queue and not self._busy

    def submit(
        self, request_frame: Sequence[RequestFrame], reply: Reply, *, is_all: bool = False
    ) -> None:
        """Predict and reply, in this turn of the loop's end or after what runs now.

        With `is_all` nobody else can ask in this turn, so it need not end first.
        """
        now = time.monotonic()
        if is_all and self._is_free and len(request_frame) <= self._max_per_turn:
            reply(self._respond(request_frame, now))
            return
        self._queue += [QueuedRequest(item, reply, now) for item in request_frame]
        if is_all and not self._scheduled:
            self._run_turn()
        else:
            self._schedule()

    def answer_plainly(self, requested: Sequence[bytes]) -> tuple[list[bytes], int] | None:
        """Answer scoring requests immediately, if nothing else is in progress and all are plain.

        Returns the bodies, and the microseconds before the forward pass. On None the caller has to
        use `submit`.
        """
        since = time.monotonic()
        if not (self._is_free and self._merges) or len(requested) > self._max_rows:
            return None
        quick = self._quick(requested)
        if quick is None:
            return None
        bodies, began = quick
        return bodies, int((began - since) * 1e6)

    def answer(self, request_frame: Sequence[RequestFrame]) -> list[ResponseFrame]:
        """Predict at once, for warming up and golden predictions."""
        return self._respond(request_frame, time.monotonic())

    def close(self) -> None:
        """Let the thread end."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def _merges(self) -> bool:
        """Return whether rows of different requests may meet in one call of the model."""
        return self._batching is BatchingMode.ROWS

    @property
    def _max_per_turn(self) -> int:
        """The number of requests that are taken at once."""
        if self._batching is BatchingMode.OFF:
            return 1
        if self._merges:
            return self._max_rows
        return max(1, min(self._max_rows, int(_TURN_MS / max(self.forward_ms, 0.01))))

    @property
    def _is_free(self) -> bool:
        """True if a new request can be answered immediately, in the event loop."""
        return not (self._queue or self._busy) and self.forward_ms < INLINE_BELOW_MS

    def _respond(self, request_frame: Sequence[RequestFrame], since: float) -> list[ResponseFrame]:
        """Answer requests that arrived together. Plain ones need no object each."""
        if len(request_frame) > 1 and not self._merges:
            return [self._respond([item], since)[0] for item in request_frame]
        predict_row = self._predict_row
        if len(request_frame) == 1 and predict_row is not None:
            answer = self._respond_single(predict_row, request_frame, since)
            if answer is not None:
                return answer
        quick = self._quick(_scoring(request_frame))
        if quick is None:
            return self._work_slowly(
                [QueuedRequest(item, _discard_reply, since) for item in request_frame]
            )
        bodies, began = quick
        queue_us = int((began - since) * 1e6)
        return [
            new(ResponseFrame, (item.number, 200, _JSON, 0, queue_us, body))
            for item, body in zip(request_frame, bodies, strict=True)
        ]

    def _respond_single(
        self,
        predict_row: Callable[[RequestFrame], Any],
        request_frame: Sequence[RequestFrame],
        since: float,
    ) -> list[ResponseFrame] | None:
        """Answer a plain request for one row. Return None for any other request."""
        (item,) = request_frame
        began = time.monotonic()
        try:
            outputs = predict_row(item)
            if outputs is None:
                return None
            self._learn(began)
            body = write_scoring(outputs)
        except Exception:  # noqa: BLE001 (a model may raise anything; the slow path reports it)
            return self._work_slowly([QueuedRequest(item, _discard_reply, since)])
        return [new(ResponseFrame, (item.number, 200, _JSON, 0, int((began - since) * 1e6), body))]

    def _schedule(self) -> None:
        if self._queue and not self._scheduled and not self._busy:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run_turn)

    def _run_turn(self) -> None:
        self._scheduled = False
        if self._busy or not self._queue:
            return
        most = self._max_per_turn
        taken = self._queue[:most]
        del self._queue[:most]
        if self.forward_ms < INLINE_BELOW_MS:
            _deliver(taken, self._work(taken))
            self._schedule()
            return
        self._busy = True
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(self._pool, self._work, taken)
        done.add_done_callback(lambda future: self._after(taken, future))

    def _after(
        self, taken: list[QueuedRequest], done: "asyncio.Future[list[ResponseFrame]]"
    ) -> None:
        self._busy = False
        if self._batching is BatchingMode.OFF:
            _deliver(taken, done.result())
            self._run_turn()
            return
        # Start the next batch before the responses of this one are written.
        self._run_turn()
        _deliver(taken, done.result())

    # Runs in the thread when the model is slow

    def _work(self, taken: list[QueuedRequest]) -> list[ResponseFrame]:
        """Answer each request, in the order of `taken`."""
        if len(taken) > 1 and not self._merges:
            return [self._work([waiting])[0] for waiting in taken]
        quick = self._quick(_scoring([waiting.frame for waiting in taken]))
        if quick is None:
            return self._work_slowly(taken)
        bodies, began = quick
        return [
            new(
                ResponseFrame,
                (request_frame.number, 200, _JSON, 0, int((began - since) * 1e6), body),
            )
            for (request_frame, _, since), body in zip(taken, bodies, strict=True)
        ]

    def _work_slowly(self, taken: list[QueuedRequest]) -> list[ResponseFrame]:
        answers: dict[int, ResponseFrame] = {}
        groups: dict[object, list[tuple[int, Batch]]] = {}
        began = time.monotonic()
        for place, waiting in enumerate(taken):
            try:
                batch = self._model.codec.read(waiting.frame)
            except BadInput as error:
                answers[place] = _refused(waiting, error)
            else:
                groups.setdefault(batch.key, []).append((place, batch))
        for group in groups.values():
            for part in self._parts(group):
                self._predict(taken, part, answers, began)
        return [answers[place] for place in range(len(taken))]

    def _quick(self, requested: Sequence[bytes]) -> tuple[list[bytes], float] | None:
        """Predict plain requests: return the bodies, and when the forward pass began.

        None where there are none or any is not plain, or the model cannot take them so.
        """
        read = self._read_many(requested) if requested and self._read_many is not None else None
        if read is None or not self._can_join or sum(read[1]) > self._max_rows:
            return None
        inputs, counts = read
        began = time.monotonic()
        try:
            outputs = self._model.predict(inputs, {})
        except Exception:  # noqa: BLE001 (a model may raise anything; the slow path finds which)
            return None
        self._learn(began)
        if not isinstance(outputs, np.ndarray):
            return None
        bodies = write_rows(outputs, counts)
        return None if bodies is None else (bodies, began)

    def _parts(self, group: list[tuple[int, Batch]]) -> list[list[tuple[int, Batch]]]:
        """Cut a group so that no part has more than `max_rows` rows, unless one request has."""
        if not self._can_join:
            return [[item] for item in group]
        parts: list[list[tuple[int, Batch]]] = []
        rows = 0
        for place, batch in group:
            if not parts or rows + batch.rows > self._max_rows:
                parts.append([])
                rows = 0
            parts[-1].append((place, batch))
            rows += batch.rows
        return parts

    def _predict(
        self,
        taken: list[QueuedRequest],
        part: list[tuple[int, Batch]],
        answers: dict[int, ResponseFrame],
        began: float,
    ) -> None:
        batches = [batch for _, batch in part]
        try:
            inputs = self._model.codec.join(batches)
            started = time.monotonic()
            outputs = self._model.predict(inputs, batches[0].params)
            self._learn(started)
            pieces = cut(outputs, [batch.rows for batch in batches])
        except Exception as error:  # noqa: BLE001 (a model may raise anything)
            if len(part) > 1:
                # One bad request must not fail the others, and some outputs cannot be cut.
                self._can_join = self._can_join and not self._fails_only_joined(batches[0])
                for item in part:
                    self._predict(taken, [item], answers, began)
                return
            answers[part[0][0]] = _failed(taken[part[0][0]], error)
            return
        for (place, batch), piece in zip(part, pieces, strict=True):
            waiting = taken[place]
            try:
                body, head, content = self._write(batch, piece)
            except Exception as error:  # noqa: BLE001 (outputs may be anything)
                answers[place] = _failed(waiting, error)
                continue
            queue_us = int((began - waiting.since) * 1e6)
            answers[place] = ResponseFrame(waiting.frame.number, 200, content, head, queue_us, body)

    def _learn(self, began: float) -> None:
        """Keep to how long a batch takes: it decides where the model runs."""
        took_ms = (time.monotonic() - began) * 1000
        self.forward_ms += _LEARNING_RATE * (took_ms - self.forward_ms)

    def _fails_only_joined(self, batch: Batch) -> bool:
        """Return whether a request succeeds alone but fails when joined with itself."""
        doubled = [batch, batch]
        try:
            cut(
                self._model.predict(self._model.codec.join(doubled), batch.params), [batch.rows] * 2
            )
        except Exception:  # noqa: BLE001 (a model may raise anything)
            try:
                self._model.predict(batch.inputs, batch.params)
            except Exception:  # noqa: BLE001
                return False
            return True
        return False

    def _write(self, batch: Batch, piece: object) -> tuple[bytes, int, Content]:
        if batch.infer is None:
            return write_scoring(piece), 0, Content.JSON
        named = by_name(piece, self._model.signature.outputs)
        return write_infer(named, batch.infer, self._name, self._version)


def _scoring(request_frame: Sequence[RequestFrame]) -> list[bytes]:
    """Return the bodies, if all are scoring requests in JSON."""
    bodies = [body for _, contract, _, body in request_frame if not contract]
    return bodies if len(bodies) == len(request_frame) else []


def _discard_reply(_answers: list[ResponseFrame]) -> None:
    """Whom to reply to when the caller has the answers already."""


def _deliver(taken: list[QueuedRequest], answers: list[ResponseFrame]) -> None:
    first = taken[0].reply
    if all(waiting.reply is first for waiting in taken):
        first(answers)
        return
    by_reply: dict[Reply, list[ResponseFrame]] = {}
    for waiting, answer in zip(taken, answers, strict=True):
        by_reply.setdefault(waiting.reply, []).append(answer)
    for reply, response_frame in by_reply.items():
        reply(response_frame)


def _refused(waiting: QueuedRequest, error: BadInput) -> ResponseFrame:
    body = problem_body(400, "invalid_input", error.detail, error.next_step or None, error.faults)
    return ResponseFrame(waiting.frame.number, 400, Content.PROBLEM, 0, 0, body)


def _failed(waiting: QueuedRequest, error: Exception) -> ResponseFrame:
    if isinstance(error, BadInput):
        return _refused(waiting, error)
    message = one_line(f"{type(error).__name__}: {error}")
    body = problem_body(
        500,
        "model_failed",
        f"The model failed on this input: {message}",
        "The model's code raised this error; check the logs of the replica.",
    )
    return ResponseFrame(waiting.frame.number, 500, Content.PROBLEM, 0, 0, body)
