"""Notes about the objects of a project."""

from slipway.connection import Connection
from slipway.resources.requests import build
from slipway.schemas.accounts import NoteIn, NoteOut


class Notes:
    """Notes about jobs, sweeps, notebook servers and endpoints, in Markdown.

    `kind` is `job`, `sweep`, `notebook` or `endpoint`. `target` is the id of a job, sweep or
    notebook server, or the name of an endpoint.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, kind: str, target: str, *, project: str) -> NoteOut:
        """Return the notes about an object. Version 0 means that there are none yet."""
        return self._connection.fetch(NoteOut, "GET", "projects", project, "notes", kind, target)

    def save(self, kind: str, target: str, text: str, *, version: int, project: str) -> NoteOut:
        """Save notes that were edited from `version` (0 for the first ones).

        Raises Conflict if somebody has saved another version meanwhile.
        """
        body = build(NoteIn, text=text, version=version)
        path = ("projects", project, "notes", kind, target)
        return self._connection.fetch(NoteOut, "PUT", *path, body=body)
