"""Downloads of a node for its task: its code and its environment, and nothing else."""

from collections.abc import Iterator

from portal.accounts.models import Project
from portal.accounts.services.secrets import secrets_of
from portal.compute.models import Environment, Node
from portal.compute.services.environments import accept_build_report, secrets_named_by
from portal.core.errors import NotFound
from portal.storage.models import StoredFile
from portal.storage.services import open_file
from portal.workloads.builds_ahead import open_requests
from portal.workloads.models import Lease
from slipway.schemas.agent import EnvironmentReport


def snapshot_of(project: Project, digest: str) -> StoredFile | None:
    """Return a file of the project with these bytes, or None."""
    files = StoredFile.objects.filter(project=project, blob__sha256=digest)
    return files.select_related("blob").order_by("pk").first()


def snapshot_for(*, node: Node, digest: str) -> tuple[Iterator[bytes], int]:
    """Return the bytes of a snapshot and their number, for a node that holds a lease on it.

    Or that is to build an image from it. Raises NotFound for any other node.
    """
    leases = Lease.objects.open().filter(node=node, workload__snapshot=digest)
    lease = leases.select_related("project").first()
    request = open_requests(node).filter(snapshot=digest).select_related("project").first()
    holder = lease or request
    file = snapshot_of(holder.project, digest) if holder else None
    if file is None:
        raise NotFound
    return open_file(file=file), file.blob.size_bytes


def environment_for(
    *, node: Node, digest: str, project_id: str
) -> tuple[Environment, dict[str, str]]:
    """Return an environment, for a node with a task that runs in it or a request to build it.

    And the secrets that its requirements name, where the task or request is of that project.
    """
    leases = Lease.objects.open().filter(node=node, workload__environment=digest)
    requests = open_requests(node).filter(environment__digest=digest)
    if project_id:
        leases = leases.filter(workload__project=project_id)
        requests = requests.filter(project=project_id)
    is_needed = leases.exists() or requests.exists()
    environment = Environment.objects.filter(digest=digest).first() if is_needed else None
    if environment is None:
        raise NotFound
    names = secrets_named_by(environment.requirements) if project_id else set()
    if not names:
        return environment, {}
    secrets = secrets_of(Project.objects.get(pk=project_id))
    return environment, {name: value for name, value in secrets.items() if name in names}


def apply_build_report(*, node: Node, digest: str, report: EnvironmentReport) -> int:
    """Accept the state of a build on a node. Returns the offset of its log to send on from.

    Raises NotFound unless the node has been given a task of the project that runs in the
    environment, now or before: a build may end after the task it was begun for. Or it has been
    requested to build it. An agent that names no project means that of the latest such task.
    """
    leases = Lease.objects.filter(node=node, workload__environment=digest)
    if report.project:
        leases = leases.filter(workload__project=report.project)
    latest = leases.select_related("workload__project").order_by("-pk").first()
    if latest is not None:
        project = latest.workload.project
    else:
        requests = open_requests(node).filter(environment__digest=digest, project=report.project)
        request = requests.select_related("project").first()
        if request is None:
            raise NotFound
        project = request.project
    return accept_build_report(node=node, project=project, digest=digest, report=report)
