"""Images of projects in the registry of the installation, by digest."""

import re

from django.conf import settings

from portal.accounts.models import Project
from portal.compute.models import EnvironmentBuild
from slipway.schemas.agent import EnvironmentReport

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PYTHON = re.compile(r"/[A-Za-z0-9._/+-]{1,199}")


def has_registry() -> bool:
    """Return whether an administrator has named a registry."""
    return bool(settings.SLIPWAY_IMAGE_REGISTRY)


def repository_of(project: Project) -> str:
    """Return the repository of the images of a project, which no other project has."""
    return f"{settings.SLIPWAY_IMAGE_REGISTRY}/{project.pk.lower()}"


def record_image(build: EnvironmentBuild, report: EnvironmentReport) -> None:
    """Record where a node has pushed an image, if that is the repository of its project."""
    repository, _, digest = report.image.partition("@")
    is_ours = has_registry() and repository == repository_of(build.project)
    if not is_ours or not _DIGEST.fullmatch(digest) or not _PYTHON.fullmatch(report.image_python):
        return
    EnvironmentBuild.objects.filter(pk=build.pk, number=report.build).update(
        image=report.image, image_python=report.image_python
    )
