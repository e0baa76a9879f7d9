"""Builds of environments before a task needs them, requested from nodes."""

from datetime import timedelta

from django.db import transaction
from django.db.models import QuerySet

from portal.accounts.audit import record
from portal.accounts.models import Project, User
from portal.compute.lifecycle import BuildState
from portal.compute.models import (
    BuildRequest,
    Environment,
    EnvironmentBuild,
    EnvironmentVersion,
    Node,
)
from portal.core import clock
from portal.core.errors import Conflict
from slipway.schemas.backends import DEFAULT_BACKEND

# A node that has not answered by then is gone, or lost its answer: somebody may request it again.
_OPEN_FOR = timedelta(hours=2)
# A large installation builds on its emptiest nodes, which are those that get the next tasks.
MOST_NODES = 20


def open_requests(node: Node) -> QuerySet[BuildRequest]:
    """Return the requests that a node has to serve."""
    return _open().filter(node=node).order_by("pk")


def requested_nodes(*, project: Project, environment: Environment) -> list[str]:
    """Return the names of the nodes that still have to answer a request of a project."""
    requests = _open().filter(project=project, environment=environment)
    return list(requests.order_by("node__name").values_list("node__name", flat=True))


def _open() -> QuerySet[BuildRequest]:
    return BuildRequest.objects.filter(created_at__gt=clock.now() - _OPEN_FOR)


def request_builds(*, version: EnvironmentVersion, by: User) -> list[Node]:
    """Request a build of a version from the nodes that take new work. Returns those that will.

    Nodes that have built it already, or lack its Python, are left out. Raises Conflict if the
    version is archived, built everywhere, or if no node that could build it takes new work.
    """
    named, environment = version.named, version.environment
    if named.archived_at is not None:
        raise Conflict(
            f"The environment {named.name} is archived.",
            code="environment_archived",
            next_step="Restore it before you build it.",
        )
    ready = Node.objects.accepting_work(clock.now()).order_by("tasks", "name")
    nodes = [node for node in ready if DEFAULT_BACKEND in node.backends]
    if not nodes:
        raise Conflict(
            "No node is ready to build it.",
            code="no_node_builds_ahead",
            next_step="Submit a job in it: its node builds it as soon as there is one.",
        )
    if version.is_conda:
        nodes = [node for node in nodes if DEFAULT_BACKEND not in node.shared_backends]
        if not nodes:
            raise Conflict(
                "No node that takes new work keeps the packages of projects apart, as packages of "
                "conda need it to be built ahead.",
                code="no_node_builds_ahead",
                next_step="Submit a job in it: its node builds it as the first step.",
            )
    else:
        nodes = [node for node in nodes if not node.pythons or environment.python in node.pythons]
    if not nodes:
        raise Conflict(
            f"No node that takes new work has Python {environment.python}.",
            code="no_such_python",
            next_step="Ask an administrator to install it on a node: uv python install "
            f"{environment.python}",
        )
    builds = EnvironmentBuild.objects.filter(project=named.project, environment=environment)
    built = set(builds.filter(state=BuildState.READY).values_list("node_id", flat=True))
    missing = [node for node in nodes if node.pk not in built][:MOST_NODES]
    if not missing:
        raise Conflict(
            f"{version.reference} is built on every node that takes new work.",
            code="already_built",
            next_step="Run a job in it.",
        )
    with transaction.atomic():
        requests = BuildRequest.objects.filter(project=named.project, environment=environment)
        requests.filter(node__in=missing, created_at__lte=clock.now() - _OPEN_FOR).delete()
        for node in missing:
            BuildRequest.objects.get_or_create(
                project=named.project,
                environment=environment,
                node=node,
                defaults={"requested_by": by},
            )
        Node.objects.wake(node.pk for node in missing)
        record(
            "named_environment.build",
            kind="named_environment",
            target=named,
            label=named.name,
            project=named.project,
            after={"version": version.number, "nodes": len(missing)},
        )
    return missing
