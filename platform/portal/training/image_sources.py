"""The Dockerfile of a project, which jobs in containers run in an image of."""

import hashlib
import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from portal.compute.engines import image_obstacle
from portal.compute.image_registry import has_registry
from portal.compute.models import Pool
from portal.compute.services.image_environments import ImageSource, offers_backend
from portal.core.errors import InvalidInput
from portal.training.project_folder import ProjectFolder
from slipway.requirement_files.dockerfile import DockerfileRefused, parse_dockerfile
from slipway.schemas.backends import BACKENDS


def image_backends() -> list[str]:
    """Return the back ends that build images of projects."""
    return [info.name for info in BACKENDS.values() if info.builds_images]


def image_source(folder: ProjectFolder, path: str) -> ImageSource:
    """Return what an image is built from: a Dockerfile, with its own folder as the build context.

    Raises InvalidInput for one that cannot be built.
    """
    try:
        text = folder.read(path) or ""
        dockerfile = parse_dockerfile(text)
    except DockerfileRefused as error:
        raise InvalidInput(
            str(error).replace("of the Dockerfile", f"of {path}", 1),
            code="bad_dockerfile",
            field="requirements_file",
            next_step=f"{error.next_step} Or submit with --requirements or --no-requirements.",
        ) from error
    context = posixpath.dirname(path)
    copied = None if dockerfile.copies is None else _digests(folder, context, dockerfile.copies)
    return ImageSource(text, context, folder.digest, copied)


def _digests(folder: ProjectFolder, context: str, names: Iterable[str]) -> dict[str, str] | None:
    """Return the digests of copied files, None if one is a folder or is not retained."""
    digests = {}
    for name in names:
        content = folder.content(posixpath.join(context, name))
        if content is None:
            return None
        digests[name] = hashlib.sha256(content).hexdigest()
    return digests


@dataclass(frozen=True)
class ImageUse:
    """Use of Dockerfiles by a job. `obstacle` is why its pool runs none."""

    is_possible: bool = False
    pool: str = ""
    obstacle: str = ""

    @classmethod
    def of(cls, backend: str, pool: Pool | None) -> "ImageUse":
        """Return that of a job in a pool, or outside of pools on a back end."""
        if pool is None:
            return cls(BACKENDS[backend].builds_images)
        obstacle = _obstacle_in(pool)
        return cls(not obstacle, pool.name, obstacle)

    def refusal(self, path: str) -> InvalidInput:
        """Return the error for a Dockerfile that a job names and cannot use."""
        names = " or ".join(image_backends())
        if self.pool:
            return InvalidInput(
                f"{path} cannot be used in pool {self.pool}: {self.obstacle}.",
                code="no_images_in_pool",
                field="requirements_file",
                next_step="Ask an administrator, or name a requirements file.",
            )
        return InvalidInput(
            f"{path} can only be used by a job in a container.",
            code="needs_container",
            field="backend",
            next_step=f"Submit with --backend {names}, or name a requirements file.",
        )

    def about_unused(self, path: str) -> str:
        """Return the sentence on a Dockerfile beside a job that does not use it."""
        if self.pool:
            return f"{path} is not used in pool {self.pool}: {self.obstacle}."
        offered = [name for name in image_backends() if offers_backend(name)]
        if offered:
            return f"{path} is not used outside of containers: --backend {offered[0]} builds it."
        return (
            f"{path} is not used: it needs a node that runs containers, and there is none. An "
            f"administrator starts an agent with --backend {image_backends()[0]}."
        )


def _obstacle_in(pool: Pool) -> str:
    """Return why a pool runs no images of projects, as a clause, empty if it does."""
    if obstacle := image_obstacle(pool.engine, pool.settings):
        return obstacle
    if not has_registry():
        return "the installation has no registry for images (SLIPWAY_IMAGE_REGISTRY)"
    if not any(offers_backend(name) for name in image_backends()):
        names = " or ".join(image_backends())
        return f"no node of the installation builds images (--backend {names})"
    return ""


def about_image(path: str, unused: list[str]) -> str:
    """Return the sentences on an image of a Dockerfile."""
    others = ""
    if unused:
        verb = "counts" if len(unused) == 1 else "count"
        others = f" {', '.join(unused)} {verb} only where the Dockerfile installs it."
    return f"An image built from {path}, with its own Python.{others}"
