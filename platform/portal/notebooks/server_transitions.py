"""Moving notebook servers: the only code that writes their states.

A move is one guarded UPDATE: the loser of a race changes nothing and gets False. Hubs hear of
every move, pages of the project too. Locks are taken in the order workload, server.
"""

from typing import Any

from portal.accounts.signals import send_accounts_changed
from portal.notebooks.models import HubVersion, Server
from portal.notebooks.server_lifecycle import sources_of
from slipway.schemas.notebook_servers import NotebookState


def move_server(server: Server, target: NotebookState, **changes: Any) -> bool:
    """Move a server that still has the workload `server` says. Returns whether it did.

    `changes` are further columns to write. A new workload may be among them.
    """
    here = Server.objects.filter(
        pk=server.pk,
        workload=server.workload_id,
        state__in=[state.value for state in sources_of(target)],
    )
    if not here.update(state=target, **changes):
        return False
    server.state = target
    for column, value in changes.items():
        setattr(server, column, value)
    announce(server)
    return True


def announce(server: Server) -> None:
    """Notify Hubs and pages of a change. Call it in the transaction of the change."""
    HubVersion.objects.raise_version()
    send_accounts_changed(server.project_id, "notebooks")
