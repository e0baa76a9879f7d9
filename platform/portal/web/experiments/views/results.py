"""Results of a run: its artifacts by what they are, and the bytes of images, audio and video."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project
from portal.core.errors import NotFound, SlipwayError
from portal.core.policy import guarded_by
from portal.core.ranges import Unsatisfiable, part_of
from portal.core.streams import ByteStream, release_connection
from portal.experiments.factories import tracker
from portal.experiments.gates import TrackedRunRole, gated_run
from portal.experiments.results.images import (
    FOLDER,
    HEADER_BYTES,
    RASTER_TYPES,
    ImageRefused,
    checked_image,
)
from portal.experiments.services.artifacts import artifact_of, read_artifact
from portal.experiments.services.inspection import InspectionRefused
from portal.experiments.services.results import RunResults, events_of, results_of
from portal.web.experiments.presenters.compared_artifacts import (
    MOST_RUNS,
    TABLE,
    compared_results,
    compared_table,
    tables_in_common,
)
from portal.web.experiments.presenters.media import MEDIA_TYPES
from portal.web.experiments.presenters.results import results_context
from portal.web.experiments.views.selection import RUN_ID_CHARACTERS
from slipway.schemas.accounts import Role, Scope

_SEE = TrackedRunRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_WHERE = {"area": "projects", "section": "experiments"}
# Opened in a tab of its own, such a file is a document without an origin that may load nothing.
_CAGE: dict[str, list[str]] = {
    "sandbox": [],
    "default-src": ["'none'"],
    "img-src": ["'self'"],
    "media-src": ["'self'"],
    "style-src": ["'unsafe-inline'"],
    "frame-ancestors": ["'none'"],
}


@guarded_by(_SEE)
@require_safe
def project_run_results(request: HttpRequest, project: str, run: str) -> HttpResponse:
    """Show the artifacts of a run by what they are. The page of the run loads this section."""
    project_row, shown = gated_project(request), gated_run(request)
    fault = ""
    try:
        results = results_of(project_id=project_row.pk, run=shown)
    except SlipwayError as error:
        results = RunResults()
        fault = " ".join(filter(None, (error.message, error.next_step)))
    context = results_context(request, project_row, shown, results)
    return render(request, "web/experiments/results.html", context | _WHERE | {"fault": fault})


@guarded_by(_SEE)
@require_safe
def project_run_media(request: HttpRequest, project: str, run: str) -> HttpResponseBase:
    """Serve one image, sound or film, or a range of it, as what it is named and nothing else."""
    project_id, shown = gated_project(request).pk, gated_run(request)
    path = request.GET.get("path", "")
    kind = MEDIA_TYPES.get(path.rpartition(".")[2].lower())
    if kind is None:
        raise NotFound
    artifact = artifact_of(project_id=project_id, run=shown, path=path)
    if kind in RASTER_TYPES.values():
        length = min(HEADER_BYTES, artifact.size_bytes)
        head = read_artifact(project_id=project_id, run=shown, artifact=artifact, length=length)
        try:
            kind = checked_image(b"".join(head)).mime
        except ImageRefused as refused:
            return HttpResponse(str(refused), status=415, content_type="text/plain; charset=utf-8")
    size_bytes = artifact.size_bytes
    try:
        part = part_of(request.headers.get("Range"), size_bytes)
    except Unsatisfiable:
        headers = {"Content-Range": f"bytes */{size_bytes}"}
        return HttpResponse(status=416, headers=headers)
    start, length = (part.start, part.length) if part else (0, size_bytes)
    pieces = read_artifact(
        project_id=project_id, run=shown, artifact=artifact, start=start, length=length
    )
    release_connection()
    response = ByteStream(pieces, status=206 if part else 200, content_type=kind)
    if part:
        response.headers["Content-Range"] = f"bytes {start}-{start + length - 1}/{size_bytes}"
    response.headers["Content-Length"] = str(length)
    response.headers["Accept-Ranges"] = "bytes"
    disposition = content_disposition_header(as_attachment=False, filename=artifact.name)
    response.headers["Content-Disposition"] = disposition or "inline"
    # The names of `mlflow.log_image` are unique. Other files may be logged again.
    is_unique = artifact.path.startswith(f"{FOLDER}/")
    response.headers["Cache-Control"] = f"private, {'max-age=600' if is_unique else 'no-store'}"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    response._csp_replace = _CAGE  # type: ignore[attr-defined]  # noqa: SLF001  (as its decorator does)
    return response


@guarded_by(_SEE)
@require_safe
def project_run_events(request: HttpRequest, project: str, run: str) -> JsonResponse:
    """Return what TensorBoard's event files of a run hold, for the charts of its results."""
    project_row, shown = gated_project(request), gated_run(request)
    try:
        return JsonResponse(events_of(project_id=project_row.pk, run=shown))
    except InspectionRefused as refused:
        return JsonResponse({"refused": str(refused)}, status=422)


@guarded_by(ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ))
@require_safe
def project_compare_artifacts(request: HttpRequest, project: str) -> HttpResponse:
    """Show artifacts of several runs side by side. The page Compare loads this section."""
    project_row = gated_project(request)
    chosen = list(dict.fromkeys(request.GET.getlist("run")))
    ids = [run_id for run_id in chosen if len(run_id) == RUN_ID_CHARACTERS][:MOST_RUNS]
    runs = [run for run in (tracker().run(project_row.pk, run_id) for run_id in ids) if run]
    context: dict[str, Any] = {"runs": runs, "fault": "", "table": None, "compared": None}
    context["hidden_runs"] = max(0, len(chosen) - MOST_RUNS)
    path = request.GET.get(TABLE, "")
    try:
        if path and len(runs) > 1:
            context["table"] = compared_table(request, project_row, runs, path)
        else:
            context["compared"] = compared_results(request, project_row, runs)
            context["tables"] = tables_in_common(runs)
    except NotFound:
        context["fault"] = "Not all of these runs have this table."
    except InspectionRefused as refused:
        context["fault"] = str(refused)
    except SlipwayError as error:
        context["fault"] = " ".join(filter(None, (error.message, error.next_step)))
    return render(request, "web/experiments/compared_artifacts.html", context | _WHERE)
