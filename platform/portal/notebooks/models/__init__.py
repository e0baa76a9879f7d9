"""The tables of the room, one file a noun."""

from portal.notebooks.models.files import Content, NotebookFile, NotebookRun, NotebookVersion
from portal.notebooks.models.hubs import Hub, HubVersion
from portal.notebooks.models.servers import Server, ServerQuerySet, ServerRun

__all__ = [
    "Content",
    "Hub",
    "HubVersion",
    "NotebookFile",
    "NotebookRun",
    "NotebookVersion",
    "Server",
    "ServerQuerySet",
    "ServerRun",
]
