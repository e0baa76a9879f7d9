"""What the matrix asks about notebook servers: one on each side, which does not run."""

from portal.accounts.models import Project, User
from portal.compute.models import Tier
from portal.notebooks.models import Server
from portal.notebooks.services.servers import start_server
from tests.portal.workloads.machines import make_tier


def make_server(*, owner: User, project: Project) -> dict[str, str]:
    """Make a server that has not been started."""
    tier = Tier.objects.filter(slug="served").first() or make_tier("served")
    server = Server.objects.create(
        project=project,
        owner=owner,
        name=f"{owner.name}-desk".lower(),
        tier=tier,
        idle_after_s=3600,
    )
    return {"notebook server": server.pk}


def start_desk(server: str) -> None:
    """Let a server wait for its place."""
    start_server(server=Server.objects.get(pk=server))


def open_desk(server: str) -> None:
    """Let a browser get into a server."""
    start_desk(server)
    Server.objects.filter(pk=server).update(state="ready")
