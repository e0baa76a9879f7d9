"""Builds of environments on the page of a job: those it waits for, and those it failed by."""

from collections.abc import Collection
from dataclasses import dataclass

from django.db.models import Q

from portal.compute.lifecycle import BuildState
from portal.compute.logs import log_store
from portal.compute.models import EnvironmentBuild
from portal.compute.services.environments import build_log_key
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.workloads.logs import plain
from portal.workloads.models import Lease, Workload
from slipway.schemas.workloads import ReasonCode

TAIL_BYTES = 16 * 1024
MOST_BUILDS = 4


@dataclass(frozen=True)
class BuildTail:
    """The end of the log of one build. `is_cut` says that there is more before it."""

    node: str
    has_failed: bool
    text: str
    is_cut: bool


def builds_of(workload: Workload, places: Collection[Lease]) -> Shortlist[BuildTail]:
    """Return the environment builds to show, on the nodes of the latest attempt.

    An image of a job in a pool is built before, on another node. Finished builds are not shown.
    Failed builds are, while they are the reason why the job does not run.
    """
    is_elsewhere = workload.pool_id is not None
    if not workload.environment or not (places or is_elsewhere):
        return Shortlist()
    shown = {BuildState.BUILDING} if not workload.status.is_final else set()
    if workload.reason == ReasonCode.ENVIRONMENT_FAILED:
        shown.add(BuildState.FAILED)
    if not shown:
        return Shortlist()
    environment_builds = EnvironmentBuild.objects.filter(
        environment__digest=workload.environment, project=workload.project_id, state__in=shown
    )
    places_of_it = Q(node__in={lease.node_id for lease in places})
    if is_elsewhere:
        places_of_it |= ~Q(environment__dockerfile="")
    environment_builds = environment_builds.filter(places_of_it)
    builds = shortlist(
        environment_builds.select_related("node").order_by("node__name"), MOST_BUILDS
    )
    return builds.replaced_by(tail_of_build(workload.environment, build) for build in builds)


def tail_of_build(digest: str, build: EnvironmentBuild) -> BuildTail:
    """Return the end of the log of a build, which needs its node."""
    key = build_log_key(digest, build)
    size = log_store().size(key)
    start = max(0, size - TAIL_BYTES)
    text = b"".join(log_store().read(key, start, TAIL_BYTES)).decode("utf-8", "replace")
    if start:
        text = text.partition("\n")[2]
    return BuildTail(build.node.name, build.state == BuildState.FAILED, plain(text), start > 0)
