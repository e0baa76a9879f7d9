"""Artifacts of runs as files: shown by a signed link, and downloaded."""

from csp.decorators import csp_replace
from django.http import HttpRequest
from django.utils.http import content_disposition_header
from django.views.decorators.clickjacking import xframe_options_exempt
from django.views.decorators.http import require_safe

from portal.accounts.gates import gated_project
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.core.streams import ByteStream
from portal.experiments.gates import ArtifactLink, RunRole, gated_run
from portal.experiments.services.artifacts import artifact_of, read_artifact
from portal.web.run_files import PAGES, PICTURES
from slipway.schemas.accounts import Role, Scope

# A page among artifacts may run its own scripts and nothing else: it has no origin, so no cookie,
# no storage and no page of the portal is within its reach, and it may load nothing from anywhere.
_CAGE = {
    "sandbox": ["allow-scripts"],
    "default-src": ["'none'"],
    "script-src": ["'unsafe-inline'", "'unsafe-eval'"],
    "style-src": ["'unsafe-inline'"],
    "img-src": ["data:", "blob:"],
    "font-src": ["data:"],
    "frame-ancestors": ["'self'"],
    "connect-src": ["'none'"],
    "form-action": ["'none'"],
    "base-uri": ["'none'"],
    "manifest-src": ["'none'"],
}


@guarded_by(ArtifactLink())
@csp_replace(_CAGE)  # type: ignore[arg-type]  # (it knows views without a path only)
@xframe_options_exempt
@require_safe
def project_run_file(request: HttpRequest, project: str, run: str) -> ByteStream:
    """Show one picture or page among the artifacts to whoever holds its link."""
    ending = request.GET.get("path", "").rpartition(".")[2].lower()
    kind = PICTURES.get(ending) or PAGES.get(ending)
    if kind is None:
        raise NotFound
    return _answer(request, kind, "inline")


@guarded_by(RunRole(Role.VIEWER, Scope.EXPERIMENTS_READ))
@require_safe
def project_run_download(request: HttpRequest, project: str, run: str) -> ByteStream:
    """Hand out one artifact, byte for byte."""
    return _answer(request, "application/octet-stream", "attachment")


def _answer(request: HttpRequest, kind: str, way: str) -> ByteStream:
    owner, found = gated_project(request).pk, gated_run(request)
    artifact = artifact_of(project_id=owner, run=found, path=request.GET.get("path", ""))
    pieces = read_artifact(
        project_id=owner, run=found, artifact=artifact, length=artifact.size_bytes
    )
    response = ByteStream(pieces, content_type=kind)
    response.headers["Content-Length"] = str(artifact.size_bytes)
    named = content_disposition_header(way == "attachment", artifact.name)
    response.headers["Content-Disposition"] = named or way
    response.headers["Cache-Control"] = "private, no-store"
    return response
