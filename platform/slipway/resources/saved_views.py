"""Saved views of runs: a filter, columns, order and charts under a name."""

from collections.abc import Sequence

from slipway.connection import Connection
from slipway.resources.requests import build
from slipway.schemas.experiments import SavedViewIn, SavedViewOut


class SavedViews:
    """The saved views of a project: the shared ones, and the caller's private ones.

    GET, POST projects/{project}/views · POST …/{view}/share · DELETE …/{view}
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str) -> Sequence[SavedViewOut]:
        """Return the views by name, at most 200 shared and 200 private ones."""
        return self._connection.fetch_list(SavedViewOut, "projects", project, "views")

    def save(
        self,
        name: str,
        query: str = "",
        *,
        project: str,
        experiment: int | None = None,
        private: bool = False,
    ) -> SavedViewOut:
        """Save a view, or replace the one of that name.

        `query` is the part of a list's address after the question mark. Without `experiment` the
        view is of all runs. A `private` view exists for the caller alone.
        """
        body = build(SavedViewIn, name=name, query=query, experiment=experiment, private=private)
        return self._connection.fetch(SavedViewOut, "POST", "projects", project, "views", body=body)

    def share(self, view: str, *, project: str) -> SavedViewOut:
        """Share a private view of the caller with the project.

        Raises Conflict if a shared view has its name.
        """
        segments = ("projects", project, "views", view, "share")
        return self._connection.fetch(SavedViewOut, "POST", *segments)

    def delete(self, view: str, *, project: str) -> None:
        """Delete a view by its id. The runs stay."""
        self._connection.send("DELETE", "projects", project, "views", view)
