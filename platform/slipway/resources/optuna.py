"""Studies that people keep with Optuna, and the log behind `slipway.optuna_storage()`."""

from collections.abc import Iterator, Sequence

from slipway.connection import Connection
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.studies import LogAppended, LogIn, LogOut, StudyOut, StudyTrialOut


class OptunaStorages:
    """The Optuna studies of a project by their ids, and its storages by their names.

    Scripts use `slipway.optuna_storage()`.

    GET, POST projects/{project}/optuna-storages/{storage}/log
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

    def append(self, storage: str, entries: Sequence[str], *, project: str) -> LogAppended:
        """Append entries, each the JSON text of an operation of Optuna's JournalStorage.

        Raises InvalidInput for an entry that Optuna could not replay, Conflict if there is no room.
        """
        body = build(LogIn, entries=list(entries))
        return self._connection.fetch(LogAppended, "POST", *_path(project, storage), body=body)

    def entries(self, storage: str, *, project: str, first: int = 0) -> Iterator[str]:
        """Yield the entries from number `first` on. Raises NotFound before the first append."""
        while True:
            query = {"from": first}
            part = self._connection.fetch(LogOut, "GET", *_path(project, storage), query=query)
            yield from part.entries
            if not part.entries or part.next >= part.length:
                return
            first = part.next


def _path(project: str, storage: str) -> tuple[str, ...]:
    return ("projects", project, "optuna-storages", storage, "log")
