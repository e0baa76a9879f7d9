"""Endpoints of the gateway: routing of requests to revisions, and their responses."""

import math
import time
from bisect import bisect
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from pathlib import Path
from random import random
from typing import Final

from slipway.schemas.serving import (
    CaptureMode,
    EndpointRoute,
    Fallback,
)
from workers.gateway import answers
from workers.gateway.answer_lines import TYPES, deliver, named, success, write_all
from workers.gateway.batcher import FrameBatcher
from workers.gateway.busy_poll import BusyPoll
from workers.gateway.capture import CaptureLog
from workers.gateway.capture_log.format import FALLBACK, RECORD, SHADOW, Entry, entry
from workers.gateway.comparison import agree
from workers.gateway.counters import EndpointCount, RevisionCount
from workers.gateway.limits import TokenBucket, bucket_for
from workers.gateway.request import Caller, Prediction
from workers.gateway.revision import Revision
from workers.serving.wire import Content, ResponseFrame, new

_MOST_TRIES: Final = 2
_MOST_SHADOWS: Final = 256
_LEAST_ADMITTED: Final = 16
_WINDOW_S: Final = 1.0
_JSON: Final = int(Content.JSON)


class Endpoint:
    """One endpoint: admission, weights, retries, capture, shadow."""

    def __init__(
        self,
        route: EndpointRoute,
        capture: CaptureLog,
        busy_poll: BusyPoll,
        relay_folder: Path | None = None,
    ) -> None:
        self.route = route
        self.relay_folder = relay_folder
        self.count = EndpointCount()
        self.bucket: TokenBucket | None = None
        self.revisions: dict[str, Revision] = {}
        self.in_flight = 0
        self.admits = route.limits.max_in_flight
        self._capture = capture
        self._busy_poll = busy_poll
        self._batcher = FrameBatcher(self._dispatch)
        self._choices: list[Revision] = []
        self._falls_back = False
        self._shares: list[float] = []
        self._shadow: Revision | None = None
        self._answered = 0
        self._measured = time.monotonic()
        self._pace = 0.0
        self._last_pace = 0.0
        self.update(route)

    def update(self, route: EndpointRoute) -> None:
        """Apply a new snapshot without affecting requests in progress."""
        self.route = route
        self.is_paused = route.state == "paused"
        self.bucket = bucket_for(route.limits.rate, self.bucket)
        self.admits = min(self.admits, route.limits.max_in_flight)
        revisions = {revision.id: revision for revision in route.revisions}
        for name in self.revisions.keys() - revisions.keys():
            self.revisions.pop(name).close()
        for name, revision in revisions.items():
            if name in self.revisions:
                self.revisions[name].update(revision)
            else:
                self.revisions[name] = Revision(self, revision)
        self._shadow = self.revisions.get(route.shadow.revision_id) if route.shadow else None
        self.update_shares()

    def close(self) -> None:
        """Release all resources, once pending requests are answered."""
        for revision in self.revisions.values():
            revision.close()
        self._choices = []

    def update_shares(self) -> None:
        """Recompute the traffic shares after weights or replicas changed."""
        live = [revision for revision in self.revisions.values() if revision.ready]
        weighted = [revision for revision in live if revision.route.weight > 0]
        # The share of a revision without replicas goes to the others, to a standby only if
        # nothing else is left and the endpoint allows it. A shadow never answers.
        shadow = self.route.shadow.revision_id if self.route.shadow else None
        standbys = [
            revision
            for revision in live
            if revision.route.is_standby and revision.route.id != shadow
        ]
        has_weight = any(revision.route.weight > 0 for revision in self.revisions.values())
        allowed = self.route.fallback == Fallback.STANDBY and has_weight
        self._choices = weighted or (standbys if allowed else [])
        self._falls_back = bool(self._choices) and not weighted
        weights = [float(revision.route.weight or 1) for revision in self._choices]
        self._shares = list(accumulate(weights))

    @property
    def is_ready(self) -> bool:
        """True if a request would be answered now."""
        return bool(self._choices) and self.route.state == "serving"

    @property
    def current(self) -> Revision | None:
        """The revision with the largest share, which metadata is about."""
        return max(self._choices, key=lambda revision: revision.route.weight, default=None)

    def refusal(self) -> bytes | None:
        """Return the response if nothing more is admitted now, before a body is even read."""
        if self.is_paused:
            self.count.unavailable += 1
            reason = self.route.reason or "The endpoint is paused by its owner."
            return answers.problem(503, "endpoint_paused", reason, retry_after_s=30)
        if self.in_flight >= self.admits:
            self.count.shed += 1
            wait_s = self.in_flight / self._pace if self._pace else 1.0
            return answers.problem(
                503,
                "overloaded",
                f"{self.in_flight} predictions are already queued, more than can be served in "
                "time.",
                "Try again after Retry-After.",
                retry_after_s=max(1, min(30, math.ceil(wait_s))),
            )
        return None

    def admit(self, pending: Prediction) -> None:
        """Predict and respond. Requests admitted without a pause are sent as one batch."""
        self.in_flight += 1
        if self.in_flight == 1:
            self._busy_poll.request_started(pending.since)
        if self.in_flight == 1 and self._batcher.last == 1:
            # Nothing else is in progress, nor was it in the previous turn: nothing to batch with.
            # Without the second condition the first of many concurrent requests would always be
            # a batch of its own.
            self._dispatch([pending])
            return
        self._batcher.add(pending)

    def measure(self, now: float) -> None:
        """Measure the throughput and derive the queue limit. Called a few times a second."""
        for revision in self.revisions.values():
            revision.has_fallback &= revision.count.in_flight > 0
        spent = now - self._measured
        if self.in_flight < _LEAST_ADMITTED:
            # Not busy: the number of responses does not show the possible throughput.
            self._answered, self._measured, self._pace, self._last_pace = 0, now, 0.0, 0.0
            self.admits = self.route.limits.max_in_flight
            return
        if spent < _WINDOW_S:
            return
        pace, self._answered, self._measured = self._answered / spent, 0, now
        # The better of two, because responses of a slow model arrive in batches, not evenly.
        self._pace, self._last_pace = max(pace, self._last_pace), pace
        in_time = int(self._pace * self.route.limits.max_queue_ms / 1000)
        self.admits = max(_LEAST_ADMITTED, min(self.route.limits.max_in_flight, in_time))

    def expire(self, now: float) -> None:
        """Answer 504 to predictions that exceed the timeout."""
        before = now - self.route.limits.timeout_s
        for revision in self.revisions.values():
            for link in revision.links.values():
                late = link.expire(before)
                revision.count.in_flight -= len(late)
                revision.count.failed += len(late)
                overdue = [pending for pending in late if pending.caller is not None]
                self.count.timed_out += len(overdue)
                if overdue:
                    self._fail(
                        revision,
                        overdue,
                        504,
                        "prediction_timeout",
                        f"The model did not respond within {self.route.limits.timeout_s:g} s.",
                    )

    # From the revisions

    def handle_responses(
        self, revision: Revision, pairs: list[tuple[Prediction, ResponseFrame]]
    ) -> None:
        """Capture, then respond. All other work is done after the responses."""
        now, at_ns = time.monotonic(), time.time_ns()
        count, ok, shadow = revision.count, revision.ok, self._shadow
        entries: list[Entry] = []
        ready: list[tuple[Caller, bytes]] = []
        shadows: list[Prediction] = []
        took_us: list[int] = []
        queued_us, pack = 0, RECORD.pack
        names = self._capture.ids.next_ids(len(pairs), at_ns // 1_000_000)
        for (pending, answer), name in zip(pairs, names, strict=True):
            caller = pending.caller
            if caller is None:
                copied = self._shadowed(count, pending, answer, at_ns, now - pending.since)
                if copied is not None:
                    entries.append(copied)
                continue
            _, status, content, head_len, queue_us, body = answer
            took = now - pending.since
            if status == 200:
                us, ask = int(took * 1e6), pending.request_format
                took_us.append(us)
                queued_us += queue_us
                key, sent, head, kind = pending.key_id, pending.body, ask.head_len, ask.contract
                # Inlined `format.entry`, because this runs for each prediction.
                flags = FALLBACK if pending.is_fallback else 0
                record = pack(
                    name, key, at_ns, us, len(sent), len(body), head, head_len, kind, flags, 200
                )
                entries.append((record, sent, body))
                if content or ask.variant or flags:
                    data = success(revision.route, pending, answer, name)
                else:
                    data = b"%b%b\r\ncontent-length: %d\r\n\r\n%b" % (ok, name, len(body), body)
                if shadow is not None and self._should_shadow(shadow, revision):
                    shadows.append(pending.copied(name, body, now))
            else:
                entries.append(pending.failed(name, at_ns, took, status))
                data = self._failed(count, answer, took, named(name, pending))
            count.fallback += pending.is_fallback
            ready.append((caller, data))
        self.in_flight -= len(ready)
        self._finish(revision, entries, ready)
        self._answered += len(ready)
        count.answer(took_us, queued_us)
        if shadows and shadow is not None and shadow.ready:
            shadow.count.mirrored += len(shadows)
            shadow.send(shadows)

    def handle_plain_responses(
        self,
        revision: Revision,
        pendings: list[Prediction],
        bodies: list[bytes],
        queue_us: int,
    ) -> None:
        """Do the same for successful JSON responses, on a fast path."""
        callers = [
            pending.caller
            for pending in pendings
            if pending.caller and pending.request_format.is_plain
        ]
        if self._shadow or revision.has_fallback or len(callers) < len(pendings):
            frames = [new(ResponseFrame, (0, 200, _JSON, 0, queue_us, body)) for body in bodies]
            self.handle_responses(revision, list(zip(pendings, frames, strict=True)))
            return
        now, at_ns = time.monotonic(), time.time_ns()
        names = self._capture.ids.next_ids(len(pendings), at_ns // 1_000_000)
        took_us = [int((now - pending.since) * 1e6) for pending in pendings]
        is_wanted = self.route.capture != CaptureMode.OFF
        is_kept = is_wanted and self._capture.append_plainly(
            *(revision.context, at_ns, names, [pending.key_id for pending in pendings]),
            *(took_us, [pending.body for pending in pendings], bodies),
        )
        if is_wanted:
            revision.count.capture(len(pendings), is_kept=is_kept)
        self.in_flight -= len(pendings)
        self._answered += len(pendings)
        ok, ends = revision.ok, answers.ENDS
        data = [
            b"".join((ok, name, ends.get(len(body)) or answers.end(len(body)), body))
            for name, body in zip(names, bodies, strict=True)
        ]
        self._deliver(partial(deliver, callers, data, now), is_kept=is_kept)
        revision.count.answer(took_us, queue_us * len(pendings))

    def lost(self, revision: Revision, pendings: list[Prediction]) -> None:
        """Retry each prediction once, or answer 502."""
        again, given_up = [], []
        for pending in pendings:
            pending.tries += 1
            if pending.caller is None:
                revision.count.shadow_failed += 1
            elif pending.tries < _MOST_TRIES and self._choices:
                revision.count.retried += 1
                pending.is_fallback = False
                again.append(pending)
            else:
                revision.count.failed += 1
                given_up.append(pending)
        if given_up:
            self._fail(
                revision,
                given_up,
                502,
                "replica_lost",
                "The replica died before it responded, and no other replica was available.",
                "Try again: predictions are safe to retry.",
                retry_after_s=1,
            )
        if again:
            self._dispatch(again)

    def _fail(
        self,
        revision: Revision,
        pendings: list[Prediction],
        status: int,
        code: str,
        detail: str,
        next_step: str | None = None,
        *,
        retry_after_s: int | None = None,
    ) -> None:
        """Capture predictions that no replica answered, then send an error response."""
        now, at_ns = time.monotonic(), time.time_ns()
        self.in_flight -= len(pendings)
        names = self._capture.ids.next_ids(len(pendings), at_ns // 1_000_000)
        entries, ready = [], []
        for pending, name in zip(pendings, names, strict=True):
            entries.append(pending.failed(name, at_ns, now - pending.since, status))
            revision.count.fallback += pending.is_fallback
            if pending.caller is not None:
                problem = answers.problem(
                    *(status, code, detail, next_step),
                    retry_after_s=retry_after_s,
                    headers=named(name, pending),
                )
                ready.append((pending.caller, problem))
        self._finish(revision, entries, ready)

    def _finish(
        self, revision: Revision, entries: list[Entry], ready: list[tuple[Caller, bytes]]
    ) -> None:
        """Capture, then respond. In strict mode respond only once the capture is on disk."""
        is_wanted = bool(entries) and self.route.capture != CaptureMode.OFF
        is_kept = is_wanted and self._capture.append(revision.context, entries)
        if is_wanted:  # copies for a shadow do not count
            revision.count.capture(len(ready), is_kept=is_kept)
        self._deliver(partial(write_all, ready), is_kept=is_kept)

    def _deliver(self, answer: Callable[[], None], *, is_kept: bool) -> None:
        if is_kept and self.route.capture == CaptureMode.STRICT:
            self._capture.call_when_synced(answer)
            return
        answer()
        if not self.in_flight:
            self._busy_poll.requests_finished()

    def _dispatch(self, pendings: list[Prediction]) -> None:
        choices = self._choices
        if self._falls_back:
            for revision in choices:
                revision.has_fallback = True
            for pending in pendings:
                pending.is_fallback = True
        if len(choices) == 1:
            choices[0].send(pendings)
            return
        if not choices:
            self._reject_without_replica(pendings)
            return
        shares, total = self._shares, self._shares[-1]
        parts: list[list[Prediction]] = [[] for _ in choices]
        for pending in pendings:
            parts[min(bisect(shares, random() * total), len(parts) - 1)].append(pending)  # noqa: S311
        for revision, part in zip(choices, parts, strict=True):
            if part:
                revision.send(part)

    def _reject_without_replica(self, pendings: list[Prediction]) -> None:
        self.in_flight -= len(pendings)
        self.count.unavailable += len(pendings)
        data = answers.problem(
            503,
            "no_replica",
            f"No replica of the endpoint is ready. {self._relay_problem()}".rstrip(),
            "Try again after Retry-After, or check the endpoint's page.",
            retry_after_s=1,
        )
        for pending in pendings:
            if pending.caller is not None:
                pending.caller.finish(data)

    def _relay_problem(self) -> str:
        """Return why replicas in a pool cannot be reached, "" where that is not the reason."""
        problems = (revision.relay_problem for revision in self.revisions.values())
        return next(filter(None, problems), "")

    def _failed(
        self, count: RevisionCount, answer: ResponseFrame, took: float, headers: bytes
    ) -> bytes:
        if answer.status < 500:
            count.refused += 1
        else:
            count.failed += 1
            count.observe([int(took * 1e6)])
        content = TYPES[Content(answer.content)]
        return answers.answer(answer.status, answer.body, content, headers)

    def _should_shadow(self, shadow: Revision, revision: Revision) -> bool:
        """Return whether the shadow gets a copy. A copy that is due but impossible is counted."""
        rule = self.route.shadow
        if rule is None or shadow is revision or random() * 100 >= rule.percent:  # noqa: S311
            return False
        if shadow.ready and shadow.count.in_flight < _MOST_SHADOWS:
            return True
        shadow.count.unmirrored += 1
        return False

    def _shadowed(
        self,
        count: RevisionCount,
        pending: Prediction,
        answer: ResponseFrame,
        at_ns: int,
        took: float,
    ) -> Entry | None:
        if answer.status != 200 or pending.shadow_of is None:
            count.shadow_failed += 1
            return None
        name, outputs = pending.shadow_of
        count.observe([int(took * 1e6)])
        count.differed += not agree(outputs, answer.body)
        return entry(
            *(name, pending.key_id, at_ns, int(took * 1e6), pending.body, answer.body),
            *(
                pending.request_format.head_len,
                answer.head_len,
                pending.request_format.contract,
                SHADOW,
                200,
            ),
        )
