"""Addresses of artifacts for elements of pages, and the media types that they are served as."""

from datetime import timedelta
from urllib.parse import urlencode

from django.http import HttpRequest
from django.urls import reverse

from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core import clock
from portal.experiments.gates import link_target
from portal.experiments.ports import Artifact, RunDetail
from portal.experiments.results.images import RASTER_TYPES
from portal.storage.signing import Grant, sign

LINK_LIFETIME = timedelta(minutes=5)
AUDIO_TYPES = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "flac": "audio/flac",
    "m4a": "audio/mp4",
}
VIDEO_TYPES = {"mp4": "video/mp4", "webm": "video/webm", "ogv": "video/ogg", "m4v": "video/mp4"}
MEDIA_TYPES = RASTER_TYPES | AUDIO_TYPES | VIDEO_TYPES
# Served by a signed link into a document without an origin.
PICTURES = RASTER_TYPES | {"svg": "image/svg+xml"}
PAGES = {"html": "text/html; charset=utf-8", "htm": "text/html; charset=utf-8"}


def signed_url(request: HttpRequest, project: Project, run: RunDetail, artifact: Artifact) -> str:
    """Return an address that shows one file for a few minutes, without any cookie."""
    target = link_target(project.slug, run.facts.id, artifact.path)
    grant = Grant("GET", target, clock.now() + LINK_LIFETIME)
    link = sign(grant, by=require_principal(request))
    query = urlencode({"path": artifact.path, "link": link.text})
    return f"{reverse('project_run_file', args=[project.slug, run.facts.id])}?{query}"


def media_url(project_slug: str, run_id: str, path: str) -> str:
    """Return the address that an <img>, <audio> or <video> loads an artifact from."""
    place = reverse("project_run_media", args=[project_slug, run_id])
    return f"{place}?{urlencode({'path': path})}"


def download_url(project_slug: str, run_id: str, path: str) -> str:
    """Return the address that downloads an artifact."""
    place = reverse("project_run_download", args=[project_slug, run_id])
    return f"{place}?{urlencode({'path': path})}"
