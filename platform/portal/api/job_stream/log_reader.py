"""Events of a stream, read from database and logs. Never call it in an event loop."""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from django.db.models import Count, F, Max

from portal.accounts.models import User
from portal.api.job_stream.cursor import Bookmark
from portal.api.v1.job_serializers import progress_out
from portal.api.v1.workload_serializers import sample_out
from portal.training.models import Checkpoint, Job
from portal.workloads.explanations import Explainer
from portal.workloads.models import Lease, UsageSample, Workload
from portal.workloads.services.logs import LogLocation, log_locations
from slipway.schemas.training import JobProgress, LogPiece

Mark = tuple[Any, ...]
# Logs of further ranks of a wider job are streamed by `rank`.
MOST_RANKS = 512
_PIECE_BYTES = 128 * 1024
_BATCH_BYTES = 512 * 1024
_MOST_SAMPLES = 200
_OLD_SAMPLES = 1000


def event(name: str, data: str, bookmark: Bookmark) -> bytes:
    """Write one server-sent event. `data` is JSON without line breaks."""
    return f"event: {name}\nid: {bookmark}\ndata: {data}\n\n".encode()


def marks_of(job_ids: Collection[str]) -> dict[str, Mark]:
    """Return a mark for each job that changes with its state.

    Uses three queries, independent of the number of jobs.
    """
    values: dict[str, list[Any]] = {}
    workloads = Workload.objects.filter(pk__in=job_ids)
    for pk, *details in workloads.values_list(
        "pk", "state", "epoch", "plan", "hold", "reason_text", "kept_until"
    ):
        values[pk] = details
    leases = Lease.objects.filter(workload__in=job_ids, epoch=F("workload__epoch"))
    for pk, *details in leases.order_by("index").values_list(
        *("workload_id", "state", "step", "first_step_at", "message", "ended_at")
    ):
        values[pk] += details
    saved = Checkpoint.objects.filter(job__in=job_ids).order_by().values("job_id")
    for row in saved.annotate(count=Count("pk"), newest=Max("created_at"), copied=Max("copied_at")):
        values[row["job_id"]] += (row["count"], row["newest"], row["copied"])
    return {pk: tuple(details) for pk, details in values.items()}


def progress_for(job: Job, viewer: User) -> JobProgress:
    """Return the progress of a job, described for one person."""
    fresh = Job.objects.of_project(job.workload.project).get(pk=job.pk)
    return progress_out(fresh, Explainer(viewer))


def new_samples(job: Job, bookmark: Bookmark) -> list[bytes]:
    """Return events of samples after the bookmark and move it, some samples at a time.

    A new client gets the samples of the last hours.
    """
    samples = UsageSample.objects.filter(lease__workload=job.workload)
    if not bookmark.sample:
        old = samples.order_by("-pk").values_list("pk", flat=True)
        bookmark.sample = old[_OLD_SAMPLES : _OLD_SAMPLES + 1].first() or 0
    fresh = samples.filter(pk__gt=bookmark.sample).select_related("lease").order_by("pk")
    events = []
    for sample in fresh[:_MOST_SAMPLES]:
        bookmark.sample = sample.pk
        events.append(event("sample", sample_out(sample).model_dump_json(), bookmark))
    return events


class LogReader:
    """Incremental reader of the logs of one job for one client, whose bookmark it moves."""

    def __init__(
        self, job: Job, bookmark: Bookmark, *, rank: int | None, attempt: int | None
    ) -> None:
        self._job, self._bookmark = job, bookmark
        self._rank, self._attempt = rank, attempt
        self._places: list[LogLocation] = []

    def look(self) -> None:
        """Query which logs exist and which of them will grow."""
        self._places = log_locations(
            workload=self._job.workload,
            rank=self._rank,
            attempt=self._attempt,
            beyond_attempt=self._bookmark.done,
            most_ranks=MOST_RANKS,
        )

    @property
    def is_whole(self) -> bool:
        """Return whether every known log is complete and was read to its end."""
        return not self._places

    def read(self) -> list[bytes]:
        """Return events for new bytes, up to a limit, or none."""
        events: list[bytes] = []
        left = _BATCH_BYTES
        waiting = self._places
        while waiting and left > 0:
            grown = [place for place in waiting if place.size_bytes() > self._offset(place)]
            waiting = []
            for place in grown:
                if left <= 0:
                    break
                piece = self._next(place)
                if piece.data:
                    left -= len(piece.data)
                    body = piece.model_dump_json(exclude_none=True)
                    events.append(event("log", body, self._bookmark))
                    waiting.append(place)
        self._forget_what_is_whole()
        return events

    def _offset(self, place: LogLocation) -> int:
        return self._bookmark.offset((place.attempt, place.rank))

    def _next(self, place: LogLocation) -> LogPiece:
        start = self._offset(place)
        data = _whole_characters(place.read(start, _PIECE_BYTES))
        self._bookmark.places[place.attempt, place.rank] = start + len(data)
        return LogPiece.of(attempt=place.attempt, rank=place.rank, offset=start, data=data)

    def _forget_what_is_whole(self) -> None:
        """Drop logs that were read to their end. Their attempts are done once all logs are."""
        open_places: dict[int, list[LogLocation]] = defaultdict(list)
        attempts = sorted({place.attempt for place in self._places})
        for place in self._places:
            if not place.is_complete or place.size_bytes() > self._offset(place):
                open_places[place.attempt].append(place)
        for attempt in attempts:
            if open_places[attempt]:
                break
            if self._rank is None and self._attempt is None:
                self._bookmark.finish(attempt)
        self._places = [place for group in open_places.values() for place in group]


def _whole_characters(data: bytes) -> bytes:
    """Return the data without a truncated UTF-8 character at its end, if more bytes follow."""
    for back in range(1, min(4, len(data))):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if back < length else data
        if byte < 0x80:
            break
    return data
