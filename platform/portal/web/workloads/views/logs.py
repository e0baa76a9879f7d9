"""Log of a workload: live, in ranges, searched, whole. Also the resource usage of its tasks."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import gated_project
from portal.accounts.principal import require_principal
from portal.core.errors import Forbidden
from portal.core.policy import guarded_by
from portal.core.streams import ByteStream, EventStream
from portal.web.base.list_query import search_parameter
from portal.web.streams.auth import listener_of
from portal.web.workloads.log_stream import follow
from portal.web.workloads.logs import matches_in, number, piece_of
from portal.workloads.gates import WorkloadRole, gated_workload
from portal.workloads.services.logs import log_of, read_log
from portal.workloads.services.samples import samples_of
from slipway.schemas.accounts import Role, Scope

RANGE_BYTES = 256 * 1024
SAMPLES = 1500
_SEE = WorkloadRole(Role.VIEWER, Scope.WORKLOADS_READ)


@guarded_by(_SEE)
@require_safe
def project_workload_follow(request: HttpRequest, project: str, workload: str) -> EventStream:
    """Stream the log of one rank from a byte on, as it grows."""
    workload_row = gated_workload(request)
    principal = require_principal(request)
    if principal.token is not None or not request.session.session_key:
        raise Forbidden(
            "Live logs of pages are for signed-in browsers.",
            next_step="Use `slipway job logs --follow`, or the API.",
        )
    listener = listener_of(principal.user, request.session.session_key, gated_project(request))
    pieces = follow(
        listener,
        workload_id=workload_row.pk,
        attempt=number(request, "attempt", workload_row.epoch),
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
def project_workload_log(request: HttpRequest, project: str, workload: str) -> JsonResponse:
    """Return a range of the log as text, for a page that scrolls back."""
    workload_row = gated_workload(request)
    piece = piece_of(
        workload_row,
        attempt=number(request, "attempt", workload_row.epoch),
        rank=number(request, "rank"),
        start=number(request, "start"),
        most_bytes=min(RANGE_BYTES, number(request, "bytes", RANGE_BYTES)),
    )
    details = {"start": piece.start, "end": piece.end, "size": piece.size, "text": piece.text}
    return _fresh(JsonResponse(details))


@guarded_by(_SEE)
@require_safe
def project_workload_find(request: HttpRequest, project: str, workload: str) -> HttpResponse:
    """List the lines of the log that hold some words."""
    workload_row, words = gated_workload(request), search_parameter(request, "q")
    attempt, rank = number(request, "attempt", workload_row.epoch), number(request, "rank")
    matches = matches_in(workload_row, attempt=attempt, rank=rank, words=words) if words else None
    context = {
        "workload": workload_row,
        "words": words,
        "found": matches,
        "attempt": attempt,
        "rank": rank,
        "area": "projects",
    }
    return render(request, "web/workloads/log_matches.html", context)


@guarded_by(_SEE)
@require_safe
def project_workload_download(request: HttpRequest, project: str, workload: str) -> ByteStream:
    """Hand out the log of one rank, byte for byte."""
    workload_row = gated_workload(request)
    attempt, rank = number(request, "attempt", workload_row.epoch), number(request, "rank")
    log = log_of(workload=workload_row, attempt=attempt, rank=rank)
    pieces = read_log(
        workload=workload_row, attempt=attempt, rank=rank, start=0, length=log.size_bytes
    )
    response = ByteStream(pieces, content_type="text/plain; charset=utf-8")
    name = f"{workload_row.pk}-attempt{attempt}-rank{rank}.log"
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.headers["Cache-Control"] = "no-store"
    return response


@guarded_by(_SEE)
@require_safe
def project_workload_samples(request: HttpRequest, project: str, workload: str) -> JsonResponse:
    """Return what the tasks of one attempt have used: a line for each, times in Unix ms."""
    workload_row = gated_workload(request)
    attempt = number(request, "attempt", workload_row.epoch)
    lines: dict[int, list[list[Any]]] = {}
    samples = samples_of(workload=workload_row, attempt=attempt)
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
        "cpu_limit_percent": workload_row.cpu_millis / 10,
        "memory_limit_bytes": workload_row.memory_bytes,
        "has_ended": workload_row.status.is_final,
        "left_out": samples.count() - len(newest) if len(newest) == SAMPLES else 0,
    }
    return _fresh(JsonResponse(details))


def _fresh(response: JsonResponse) -> JsonResponse:
    response.headers["Cache-Control"] = "no-store"
    return response
