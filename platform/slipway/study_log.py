"""The log of an Optuna storage, as Optuna's JournalStorage reads and appends to it.

Imported by `slipway.optuna_storage()` alone, because it needs Optuna.
"""

import json
import os
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from slipway.client import Client
from slipway.credentials import default_project
from slipway.errors import Conflict, InvalidInput, NotFound
from slipway.retries import Retries
from slipway.schemas.studies import MAX_ENTRIES_A_CALL

# A study may take days: it waits a minute for a portal that restarts. An append is repeated with
# the same Idempotency-Key, so it is in the log once.
_RETRIES = Retries(attempts=9)
# A request may have 1 MiB, and quotes are escaped in it.
_REQUEST_BYTES = 400 * 1024


class StudyLog(BaseJournalBackend):
    """A log of operations on the studies of a storage, in a project of a Slipway server.

    It may be shared between threads, and be pickled or forked unless it has a `client` of its own.

    The first answer names the id of the storage, which later requests send: numbers of studies and
    trials have no meaning in another storage of the same name.
    """

    def __init__(
        self,
        storage: str,
        *,
        project: str | None,
        client: Client | None,
        storage_id: str | None = None,
    ) -> None:
        self._storage = storage
        self._storage_id = storage_id
        self._given_client = client
        self._client = client or Client(retries=_RETRIES)
        self._process = os.getpid()
        slug = project or default_project(self._client.url)
        if slug is None:
            raise InvalidInput(
                "No project is named and none is in use.",
                field="project",
                next_step='Pass project="…", or choose one with `slipway project use PROJECT`.',
            )
        self._project = slug

    def __getstate__(self) -> dict[str, str | None]:
        if self._given_client is not None:
            raise InvalidInput(
                "This storage uses a client that was passed to it, which stays in its process.",
                field="client",
                next_step="Call slipway.optuna_storage() in each process.",
            )
        # No token: the other process has one.
        return {
            "storage": self._storage,
            "project": self._project,
            "storage_id": self._storage_id,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        StudyLog.__init__(self, client=None, **state)

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the entries from that number on. Raises Conflict if the storage was deleted."""
        while True:
            try:
                part = self._connected().optuna.log(
                    self._storage,
                    project=self._project,
                    first=log_number_from,
                    storage_id=self._storage_id,
                )
            except NotFound as error:
                if self._storage_id is None:
                    # There is no storage before its first entry.
                    return
                raise self._gone(error) from error
            self._storage_id = part.storage_id
            yield from map(json.loads, part.entries)
            if not part.entries or part.next >= part.length:
                return
            log_number_from = part.next

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries in their order, in several requests if they are many or long.

        Raises Conflict if the storage is full or was deleted.
        """
        texts = [json.dumps(entry, separators=(",", ":")) for entry in logs]
        while texts:
            sizes = accumulate(map(len, texts[:MAX_ENTRIES_A_CALL]))
            count = max(1, sum(size <= _REQUEST_BYTES for size in sizes))
            appended = self._connected().optuna.append(
                self._storage,
                texts[:count],
                project=self._project,
                storage_id=self._storage_id,
            )
            self._storage_id = appended.storage_id
            del texts[:count]

    def _gone(self, error: NotFound) -> Conflict:
        return Conflict(
            f"The Optuna storage {self._storage} was deleted while it was used, or you have lost "
            f"access to the project {self._project}.",
            code="storage_deleted",
            next_step="Start the script again: its study then begins in a new storage.",
            request_id=error.request_id,
        )

    def _connected(self) -> Client:
        """Return the client, a new one after a fork: a connection belongs to one process."""
        if self._given_client is None and self._process != os.getpid():
            self._client, self._process = Client(retries=_RETRIES), os.getpid()
        return self._client
