"""Access tokens for programs of a server's owner: editors and scripts, without a browser."""

from dataclasses import dataclass

from django.db import transaction

from portal.accounts import audit
from portal.core.errors import Conflict
from portal.notebooks.hub_tokens import server_token
from portal.notebooks.models import Server
from portal.notebooks.urls import host_of, prefix_of
from slipway.schemas.notebook_servers import NotebookState


@dataclass(frozen=True)
class ServerKey:
    """URL of Jupyter's own API, and its token, which is valid for this start only."""

    url: str
    token: str


def issue_server_key(*, server: Server) -> ServerKey:
    """Return the access token of a ready server. The request is recorded.

    Raises Conflict while it is not ready.
    """
    with transaction.atomic():
        current = Server.objects.select_for_update(of=("self",), no_key=True).get(pk=server.pk)
        workload = current.workload
        if workload is None or current.status != NotebookState.READY:
            raise Conflict(
                f"The notebook server {current.name} is {current.state}.",
                code="server_not_ready",
                next_step="Start it, and wait until it is ready.",
            )
        audit.record(
            "notebook.key",
            kind="notebook",
            target=current,
            label=current.name,
            project=server.project,
        )
    address = f"{host_of(current)}{prefix_of(current)}"
    return ServerKey(address, server_token(workload.pk, workload.epoch))
