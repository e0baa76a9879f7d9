"""Artifacts of runs as files: shown by a signed link, and downloaded."""

from collections.abc import Iterable
from typing import cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.templatetags.static import static
from django.utils.http import content_disposition_header
from django.views.decorators.clickjacking import xframe_options_exempt
from django.views.decorators.http import require_safe

from portal.accounts.gates import gated_project
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.core.streams import ByteStream
from portal.experiments.gates import ArtifactLink, TrackedRunRole, gated_run
from portal.experiments.services.artifacts import artifact_of, read_artifact
from portal.web.experiments.framed_pages import MOST_BYTES, figure_page, framed_page
from portal.web.experiments.presenters.media import PAGES, PICTURES
from slipway.schemas.accounts import Role, Scope

# A document that shows an artifact has an opaque origin, so it has no access to cookies, storage or
# pages of the portal, and it may not load anything. Only HTML pages may run scripts, and only in a
# frame: in a tab of its own, a page with scripts could navigate that tab elsewhere.
_CAGE: dict[str, list[str]] = {
    "sandbox": [],
    "default-src": ["'none'"],
    "script-src": ["'none'"],
    "style-src": ["'unsafe-inline'"],
    "img-src": ["data:", "blob:"],
    "font-src": ["data:"],
    "frame-ancestors": ["'self'"],
    "connect-src": ["'none'"],
    "form-action": ["'none'"],
    "base-uri": ["'none'"],
    "manifest-src": ["'none'"],
}
# `framed_page` narrows this to the scripts that it has guarded.
_CAGE_OF_SCRIPTS = _CAGE | {
    "sandbox": ["allow-scripts"],
    "script-src": ["'unsafe-inline'", "'unsafe-eval'"],
}
_FRAMES = (None, "iframe", "frame")


@guarded_by(ArtifactLink())
@xframe_options_exempt
@require_safe
def project_run_file(request: HttpRequest, project: str, run: str) -> HttpResponseBase:
    """Show one picture or page among the artifacts to anybody with its link."""
    ending = request.GET.get("path", "").rpartition(".")[2].lower()
    is_figure = ending == "json" and request.GET.get("as") == "figure"
    kind = PAGES["html"] if is_figure else PICTURES.get(ending) or PAGES.get(ending)
    if kind is None:
        raise NotFound
    response: HttpResponseBase = _answer(request, kind, "inline")
    size_bytes = int(response.headers["Content-Length"])
    cage = _CAGE
    # Browsers send the header only over HTTPS or to their own machine.
    is_framed = request.headers.get("Sec-Fetch-Dest") in _FRAMES
    if is_figure and not (is_framed and size_bytes <= MOST_BYTES):
        raise NotFound
    if (ending in PAGES or is_figure) and is_framed and size_bytes <= MOST_BYTES:
        plotly_url = f"{settings.SLIPWAY_URL}{static('npm/plotly.js-dist-min/plotly.min.js')}"
        cage = _CAGE_OF_SCRIPTS | {"script-src": [*_CAGE_OF_SCRIPTS["script-src"], plotly_url]}
        pieces = cast("Iterable[bytes]", cast("ByteStream", response).streaming_content)
        content = b"".join(pieces)
        page = framed_page(figure_page(content) if is_figure else content, plotly_url=plotly_url)
        response = _page(response, page, kind)
    response.headers["X-DNS-Prefetch-Control"] = "off"
    response._csp_replace = cage  # type: ignore[attr-defined]  # noqa: SLF001  (as its decorator does)
    return response


def _page(stream: HttpResponseBase, page: bytes, kind: str) -> HttpResponse:
    response = HttpResponse(page, content_type=kind)
    for name in ("Content-Disposition", "Cache-Control"):
        response.headers[name] = stream.headers[name]
    return response


@guarded_by(TrackedRunRole(Role.VIEWER, Scope.EXPERIMENTS_READ))
@require_safe
def project_run_download(request: HttpRequest, project: str, run: str) -> ByteStream:
    """Hand out one artifact, byte for byte."""
    return _answer(request, "application/octet-stream", "attachment")


def _answer(request: HttpRequest, kind: str, way: str) -> ByteStream:
    owner, run = gated_project(request).pk, gated_run(request)
    artifact = artifact_of(project_id=owner, run=run, path=request.GET.get("path", ""))
    pieces = read_artifact(project_id=owner, run=run, artifact=artifact, length=artifact.size_bytes)
    response = ByteStream(pieces, content_type=kind)
    response.headers["Content-Length"] = str(artifact.size_bytes)
    named = content_disposition_header(way == "attachment", artifact.name)
    response.headers["Content-Disposition"] = named or way
    response.headers["Cache-Control"] = "private, no-store"
    return response
