"""Studies that people keep with Optuna, and the log behind `slipway.optuna_storage()`."""

from collections.abc import Iterator, Sequence

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.studies import (
    LogAppended,
    LogIn,
    LogOut,
    StorageOut,
    StudyOut,
    StudyTrialOut,
)


class OptunaStorages:
    """The Optuna studies of a project by their ids, and its storages by their names.

    Scripts use `slipway.optuna_storage()`.

    GET projects/{project}/optuna-storages · DELETE …/{storage} · GET, POST …/{storage}/log
    GET projects/{project}/optuna-studies · …/{study}, …/{study}/trials
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(self, *, project: str, search: str | None = None) -> Pages[StudyOut]:
        """List studies whose name contains `search`, newest first."""
        segments = ("projects", project, "optuna-studies")
        return Pages(self._connection, segments, PageOf[StudyOut], {"q": search})

    def get(self, study: str, *, project: str) -> StudyOut:
        """Return one study, with its best trial."""
        return self._connection.fetch(StudyOut, "GET", "projects", project, "optuna-studies", study)

    def trials(self, study: str, *, project: str) -> Pages[StudyTrialOut]:
        """List the trials of a study, newest first."""
        segments = ("projects", project, "optuna-studies", study, "trials")
        return Pages(self._connection, segments, PageOf[StudyTrialOut])

    def storages(self, *, project: str) -> Pages[StorageOut]:
        """List the storages of a project with their sizes, newest first."""
        segments = ("projects", project, "optuna-storages")
        return Pages(self._connection, segments, PageOf[StorageOut])

    def delete_storage(self, name: str, *, project: str) -> None:
        """Delete a storage with its studies and trials. Jobs stay.

        Raises Conflict while a job that has written to it has not ended.
        """
        self._connection.send("DELETE", "projects", project, "optuna-storages", name)

    def append(
        self, storage: str, entries: Sequence[str], *, project: str, storage_id: str | None = None
    ) -> LogAppended:
        """Append entries, each the JSON text of an operation of Optuna's JournalStorage.

        With `storage_id`, of an earlier answer, only that storage is written to. Raises
        InvalidInput for an entry that Optuna could not replay, Conflict if there is no room or the
        storage was deleted.
        """
        body = build(LogIn, entries=list(entries), storage_id=storage_id)
        return self._connection.fetch(LogAppended, "POST", *_log(project, storage), body=body)

    def log(
        self, storage: str, *, project: str, first: int = 0, storage_id: str | None = None
    ) -> LogOut:
        """Return a part of the entries from number `first` on.

        Raises NotFound before the first append. With `storage_id`, of an earlier answer, raises
        Conflict for another storage of that name: the one that was read is deleted.
        """
        query = {"from": first, "storage_id": storage_id}
        return self._connection.fetch(LogOut, "GET", *_log(project, storage), query=query)

    def entries(self, storage: str, *, project: str, first: int = 0) -> Iterator[str]:
        """Yield the entries from number `first` on. Raises NotFound before the first append."""
        storage_id: str | None = None
        while True:
            part = self.log(storage, project=project, first=first, storage_id=storage_id)
            yield from part.entries
            if not part.entries or part.next >= part.length:
                return
            first, storage_id = part.next, part.storage_id


def _log(project: str, storage: str) -> tuple[str, ...]:
    return ("projects", project, "optuna-storages", storage, "log")
