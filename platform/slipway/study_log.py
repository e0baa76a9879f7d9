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
from slipway.errors import InvalidInput, NotFound
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
    """

    def __init__(self, storage: str, *, project: str | None, client: Client | None) -> None:
        self._storage = storage
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

    def __getstate__(self) -> dict[str, str]:
        if self._given_client is not None:
            raise InvalidInput(
                "This storage uses a client that was passed to it, which stays in its process.",
                field="client",
                next_step="Call slipway.optuna_storage() in each process.",
            )
        # No token: the other process has one.
        return {"storage": self._storage, "project": self._project}

    def __setstate__(self, state: dict[str, str]) -> None:
        StudyLog.__init__(self, state["storage"], project=state["project"], client=None)

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the entries from that number on."""
        entries = self._connected().optuna.entries(
            self._storage, project=self._project, first=log_number_from
        )
        try:
            for entry in entries:
                yield json.loads(entry)
        except NotFound:
            # There is no storage before its first entry.
            if log_number_from:
                raise

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries in their order, in several requests if they are many or long."""
        texts = [json.dumps(entry, separators=(",", ":")) for entry in logs]
        while texts:
            sizes = accumulate(map(len, texts[:MAX_ENTRIES_A_CALL]))
            count = max(1, sum(size <= _REQUEST_BYTES for size in sizes))
            self._connected().optuna.append(self._storage, texts[:count], project=self._project)
            del texts[:count]

    def _connected(self) -> Client:
        """Return the client, a new one after a fork: a connection belongs to one process."""
        if self._given_client is None and self._process != os.getpid():
            self._client, self._process = Client(retries=_RETRIES), os.getpid()
        return self._client
