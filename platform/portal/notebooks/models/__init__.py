"""Models of the app, one file per noun."""

from portal.notebooks.models.files import (
    UNDO_WITHIN,
    Content,
    NotebookFile,
    NotebookRun,
    NotebookVersion,
)
from portal.notebooks.models.hubs import HEARD_EVERY, Hub, HubVersion
from portal.notebooks.models.servers import Server, ServerQuerySet, ServerRun
from portal.notebooks.models.workspaces import (
    WorkspaceRequest,
    transfer_deadline,
)

__all__ = [
    "HEARD_EVERY",
    "UNDO_WITHIN",
    "Content",
    "Hub",
    "HubVersion",
    "NotebookFile",
    "NotebookRun",
    "NotebookVersion",
    "Server",
    "ServerQuerySet",
    "ServerRun",
    "WorkspaceRequest",
    "transfer_deadline",
]
