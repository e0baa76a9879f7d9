"""Experiments: listed, moved to the trash, taken out of it."""

from collections.abc import Sequence

from slipway.connection import Connection
from slipway.schemas.experiments import ExperimentOut, TrashEmptied


class Experiments:
    """The experiments of a project. `experiment` is the number of one.

    GET projects/{project}/experiments · DELETE …/{experiment} · POST …/{experiment}/restore ·
    POST projects/{project}/trash/empty
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
        self, *, project: str, search: str | None = None, deleted: bool = False
    ) -> Sequence[ExperimentOut]:
        """Return the experiments, the one used last first, with their runs counted."""
        query = {"q": search, "stage": "deleted" if deleted else None}
        segments = ("projects", project, "experiments")
        return self._connection.fetch_list(ExperimentOut, *segments, query=query)

    def delete(self, experiment: int, *, project: str) -> None:
        """Move an experiment to the trash, with its runs."""
        self._connection.send("DELETE", "projects", project, "experiments", str(experiment))

    def restore(self, experiment: int, *, project: str) -> ExperimentOut:
        """Restore an experiment from the trash, with the runs deleted together with it."""
        segments = ("projects", project, "experiments", str(experiment), "restore")
        return self._connection.fetch(ExperimentOut, "POST", *segments)

    def empty_trash(self, *, project: str) -> TrashEmptied:
        """Destroy the runs in the trash, and orphaned artifacts. Return what that freed."""
        return self._connection.fetch(TrashEmptied, "POST", "projects", project, "trash", "empty")
