"""Log of a job: live, in ranges, searched, whole. Also the resource usage of its tasks."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.core.errors import Forbidden
from portal.core.policy import guarded_by
from portal.core.streams import ByteStream, EventStream
from portal.web.jobs import job_of
from portal.web.list_query import word
from portal.web.log_stream import follow
from portal.web.logs import matches_in, number, piece_of
from portal.web.sse_auth import listener_of
from portal.workloads.models import Workload
from portal.workloads.services.logs import log_of, read_log
from portal.workloads.services.samples import samples_of
from slipway.schemas.accounts import Role, Scope

RANGE_BYTES = 256 * 1024
SAMPLES = 1500
_SEE = ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)


@guarded_by(_SEE)
@require_safe
def project_job_follow(request: HttpRequest, project: str, job: str) -> EventStream:
    """Stream the log of one rank from a byte on, as it grows."""
    workload = _workload(request, job)
    principal = require_principal(request)
    if principal.token is not None or not request.session.session_key:
        raise Forbidden(
            "Live logs of pages are for signed-in browsers.",
            next_step="Use `slipway job logs --follow`, or the API.",
        )
    listener = listener_of(principal.user, request.session.session_key, gated_project(request))
    pieces = follow(
        listener,
        workload_id=workload.pk,
        attempt=number(request, "attempt", workload.epoch),
        rank=number(request, "rank"),
        start=_resumed_from(request),
    )
    return EventStream(pieces)


def _resumed_from(request: HttpRequest) -> int | None:
    """Return the byte to resume from: the last event id, or `start`. None is the end."""
    last = request.headers.get("Last-Event-ID", "")
    if last.isascii() and last.isdigit() and len(last) <= len(str(2**53)):
        return int(last)
    return number(request, "start") if request.GET.get("start") else None


@guarded_by(_SEE)
@require_safe
def project_job_log(request: HttpRequest, project: str, job: str) -> JsonResponse:
    """Return a range of the log as text, for a page that scrolls back."""
    workload = _workload(request, job)
    piece = piece_of(
        workload,
        attempt=number(request, "attempt", workload.epoch),
        rank=number(request, "rank"),
        start=number(request, "start"),
        most_bytes=min(RANGE_BYTES, number(request, "bytes", RANGE_BYTES)),
    )
    details = {"start": piece.start, "end": piece.end, "size": piece.size, "text": piece.text}
    return _fresh(JsonResponse(details))


@guarded_by(_SEE)
@require_safe
def project_job_find(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """List the lines of the log that hold some words."""
    workload, words = _workload(request, job), word(request, "q")
    attempt, rank = number(request, "attempt", workload.epoch), number(request, "rank")
    matches = matches_in(workload, attempt=attempt, rank=rank, words=words) if words else None
    context = {
        "workload": workload,
        "words": words,
        "found": matches,
        "attempt": attempt,
        "rank": rank,
        "room": "projects",
        "section": "jobs",
    }
    return render(request, "web/jobs/found.html", context)


@guarded_by(_SEE)
@require_safe
def project_job_download(request: HttpRequest, project: str, job: str) -> ByteStream:
    """Hand out the log of one rank, byte for byte."""
    workload = _workload(request, job)
    attempt, rank = number(request, "attempt", workload.epoch), number(request, "rank")
    log = log_of(workload=workload, attempt=attempt, rank=rank)
    pieces = read_log(workload=workload, attempt=attempt, rank=rank, start=0, length=log.size_bytes)
    response = ByteStream(pieces, content_type="text/plain; charset=utf-8")
    name = f"{workload.pk}-attempt{attempt}-rank{rank}.log"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "no-store"
    return response


@guarded_by(_SEE)
@require_safe
def project_job_samples(request: HttpRequest, project: str, job: str) -> JsonResponse:
    """Return what the tasks of one attempt have used: a line for each, times in Unix ms."""
    workload = _workload(request, job)
    attempt = number(request, "attempt", workload.epoch)
    lines: dict[int, list[list[Any]]] = {}
    samples = samples_of(workload=workload, attempt=attempt)
    newest = samples.reverse()[:SAMPLES]
    for sample in reversed(newest):
        lines.setdefault(sample.lease.index, []).append(
            [
                int(sample.at.timestamp() * 1000),
                round(sample.cpu_percent, 1),
                sample.memory_bytes,
                sample.gpu_percent,
            ]
        )
    details = {
        "tasks": [{"index": index, "points": points} for index, points in sorted(lines.items())],
        "cpu_limit_percent": workload.cpu_millis / 10,
        "memory_limit_bytes": workload.memory_bytes,
        "is_over": workload.status.is_final,
        "left_out": samples.count() - len(newest) if len(newest) == SAMPLES else 0,
    }
    return _fresh(JsonResponse(details))


def _workload(request: HttpRequest, job: str) -> Workload:
    return job_of(gated_project(request), job).workload


def _fresh(response: JsonResponse) -> JsonResponse:
    response.headers["Cache-Control"] = "no-store"
    return response
