"""Images that jobs in pools run in: built once on a node with Docker, and pushed to a registry."""

from dataclasses import dataclass

from portal.compute.engines import OrderedImage
from portal.compute.image_registry import has_registry, repository_of
from portal.compute.lifecycle import BuildState
from portal.compute.logs import log_store
from portal.compute.models import BuildRequest, Environment, EnvironmentBuild, Node
from portal.compute.services.environments import build_log_key
from portal.core import clock
from portal.workloads.builds_ahead import open_requests
from portal.workloads.models import Allocation, Workload
from slipway.schemas.backends import BACKENDS

_TAIL_BYTES = 4096
_FAILED = "The image could not be "


@dataclass(frozen=True)
class ImageWait:
    """An image that is not in the registry yet, and why."""

    reason: str


class ImageFailed(Exception):
    """An image cannot be had. The text is for people."""


def image_for(allocation: Allocation) -> OrderedImage | ImageWait | None:
    """Return the image that an allocation runs in, None for none. Raises ImageFailed.

    One that is not in the registry is requested from a node. Repeated calls request it once.
    """
    workload = allocation.workload
    if not workload.environment:
        return None
    environments = Environment.objects.filter(digest=workload.environment)
    environment = environments.exclude(dockerfile="").first()
    if environment is None:
        return None
    if not has_registry():
        raise ImageFailed("The installation has no registry for images any more.")
    builds = EnvironmentBuild.objects.filter(environment=environment, project=workload.project)
    pushed = builds.filter(image__startswith=f"{repository_of(workload.project)}@")
    build = pushed.order_by("-changed_at").first()
    if build is not None:
        return OrderedImage(build.image, build.image_python)
    failed = builds.filter(state=BuildState.FAILED, changed_at__gte=allocation.created_at)
    build = failed.select_related("node").order_by("-changed_at").first()
    if build is not None:
        raise ImageFailed(_reason_of(environment, build))
    return _request(workload, environment)


def _request(workload: Workload, environment: Environment) -> ImageWait:
    builders = [
        node
        for node in Node.objects.accepting_work(clock.now()).order_by("tasks", "name")
        if any(info.builds_images and name in node.backends for name, info in BACKENDS.items())
    ]
    for node in builders:
        requests = open_requests(node).filter(environment=environment, project=workload.project)
        if requests.exists():
            return ImageWait(f"node {node.name} builds its image and pushes it to the registry.")
    if not builders:
        return ImageWait("no node that builds images (--backend docker) takes work now.")
    requests = BuildRequest.objects.filter(environment=environment, project=workload.project)
    requests.delete()  # of nodes that are gone, or did not answer
    node = builders[0]
    BuildRequest.objects.create(
        project=workload.project,
        environment=environment,
        node=node,
        requested_by=workload.submitted_by,
        snapshot=workload.snapshot,
        cpu_millis=workload.amount.cpu_millis,
        memory_bytes=workload.amount.memory_bytes,
    )
    Node.objects.wake([node.pk])
    return ImageWait(f"node {node.name} is about to build its image.")


def _reason_of(environment: Environment, build: EnvironmentBuild) -> str:
    """Return the last words of a build that failed, from its log."""
    key = build_log_key(environment.digest, build)
    start = max(0, log_store().size(key) - _TAIL_BYTES)
    text = b"".join(log_store().read(key, start, _TAIL_BYTES)).decode("utf-8", "replace")
    _, mark, reason = text.rpartition(f"\n{_FAILED}")
    if not mark:
        return f"{_FAILED}built on node {build.node.name}."
    return f"{_FAILED}{reason.strip()}"
