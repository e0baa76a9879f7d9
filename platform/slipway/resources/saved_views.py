"""Saved views of runs: a filter, columns, order and charts under a name."""

from collections.abc import Sequence

from slipway.connection import Connection
from slipway.resources.requests import build
from slipway.schemas.experiments import SavedViewIn, SavedViewOut


class SavedViews:
    """The saved views of a project, which everybody in it shares.

    GET, POST projects/{project}/views · DELETE …/{view}
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str) -> Sequence[SavedViewOut]:
        """Return the views by name, 200 at most."""
        return self._connection.fetch_list(SavedViewOut, "projects", project, "views")

    def save(
        self, name: str, query: str = "", *, project: str, experiment: int | None = None
    ) -> SavedViewOut:
        """Save a view, or replace the one of that name.

        `query` is the part of a list's address after the question mark. Without `experiment` the
        view is of all runs.
        """
        body = build(SavedViewIn, name=name, query=query, experiment=experiment)
        return self._connection.fetch(SavedViewOut, "POST", "projects", project, "views", body=body)

    def delete(self, view: str, *, project: str) -> None:
        """Delete a view by its id. The runs stay."""
        self._connection.send("DELETE", "projects", project, "views", view)
