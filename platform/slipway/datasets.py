"""A dataset in a script: a local path or a table, of exactly one version.

    >>> import slipway

    >>> digits = slipway.dataset("digits:3")
    >>> digits.path            # a folder of this machine with its files
    >>> digits.arrow()         # its table, with pyarrow
    >>> digits.pandas()

In a job the version it was submitted with is meant where none is named, and what is read is noted:
as the job's data on its page, and as an input of the active MLflow run.
"""

import contextlib
import json
import os
import random
import re
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

import httpx

from slipway import job
from slipway.client import Client
from slipway.credentials import default_project
from slipway.dataset_cache import local_path
from slipway.errors import InvalidInput, SlipwayError
from slipway.retries import RETRIED_STATUSES, Retries, retry_after_s
from slipway.schemas.datasets import REFERENCE_PATTERN, DatasetVersionOut, DataTableOut
from slipway.schemas.tables import is_plain, table_key

_REFERENCE = re.compile(REFERENCE_PATTERN.replace("$", r"\Z"))
_NOTE_WITHIN_S = 10.0
# MLflow may be starting or restarting: retry for about two minutes.
_LOOK_EVERY_S = 1.0
_AFTER_END_S = 10.0
_PATIENCE = Retries(attempts=120, first_wait_s=0.25, longest_wait_s=30.0)
# MLflow stores 36 characters of a digest.
_MLFLOW_DIGEST = 36


class Dataset:
    """One version of a dataset. Nothing is downloaded before it is needed."""

    def __init__(self, client: Client, project: str, version: DatasetVersionOut) -> None:
        self._client = client
        self._project = project
        self._version = version
        self._reported: set[str] = set()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<slipway dataset {self.reference}>"

    @property
    def name(self) -> str:
        """Its name."""
        return self._version.dataset

    @property
    def version(self) -> int:
        """The number of the version."""
        return self._version.number or 0

    @property
    def reference(self) -> str:
        """Exactly this version, as others can name it: `digits:3`."""
        return f"{self.name}:{self.version}"

    @property
    def digest(self) -> str:
        """SHA-256 that names the content, 64 hex digits."""
        return self._version.digest or ""

    @property
    def path(self) -> Path:
        """A local folder with its files, downloaded and verified once. Do not write to it.

        Raises SlipwayError.
        """
        self.note_use()
        with self._lock:
            return local_path(self._client, self._project, self._version)

    @cached_property
    def tables(self) -> Sequence[DataTableOut]:
        """Its tables with schema and statistics."""
        return self._client.datasets.tables(self.name, self.version, project=self._project)

    def arrow(self, table: str | None = None) -> Any:
        """Return a table as a pyarrow.Table. `table` is optional if there is only one.

        Its names, types and values are those of the page of the version. Raises InvalidInput where
        there is none of that name, rows cannot be read, or pyarrow is not installed.
        """
        reading, described = self._reading(), self._table(table)
        return reading.read_table(described, self._files_of(described), self._version.settings)

    def pandas(self, table: str | None = None) -> Any:
        """Return a table as a pandas.DataFrame. See `arrow`.

        A column of whole numbers with missing values is one of fractions, as usual in pandas, or
        of the nullable type `Int64` where that would round.
        """
        return self._reading().to_pandas(self.arrow(table))

    def batches(self, table: str | None = None) -> Iterator[Any]:
        """Yield a table in pyarrow.RecordBatches, for tables larger than the memory."""
        reading, described = self._reading(), self._table(table)
        yield from reading.read_batches(
            described, self._files_of(described), self._version.settings
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the only table as dictionaries."""
        for batch in self.batches():
            yield from batch.to_pylist()

    def _reading(self) -> Any:
        try:
            return import_module("slipway.dataset_tables")
        except ImportError as error:
            raise InvalidInput(
                f"Reading tables needs pyarrow, which cannot be imported: {error}.",
                code="needs_pyarrow",
                next_step="Add pyarrow to the requirements, or read the files under `.path`.",
            ) from None

    def _files_of(self, table: DataTableOut) -> list[tuple[str, Path]]:
        return [(part, self.path / part) for part in self._parts(table)]

    def _table(self, name: str | None) -> DataTableOut:
        named = [table for table in self.tables if name in (None, table.name)]
        if len(named) == 1:
            return named[0]
        names = ", ".join(table.name for table in self.tables) or "none"
        if self._version.tables_left_out:
            names += (
                f". {self._version.tables_left_out:,} more exceed the limit of tables; read "
                "their files under `.path`"
            )
        raise InvalidInput(
            f"{self.reference} has no table {name}."
            if name
            else f"{self.reference} has {len(self.tables)} tables.",
            code="which_table",
            field="table",
            next_step=f"Name one of its tables: {names}.",
        )

    def _parts(self, table: DataTableOut) -> list[str]:
        if table.files == 1:
            return [table.name]
        paths = (path.relative_to(self.path).as_posix() for path in self.path.rglob("*"))
        plain_files = self._version.settings.plain_files
        files = [path for path in paths if not is_plain(path, plain_files)]
        parts = [file for file in files if table_key(file) == table.name]
        if len(parts) < table.files:
            # Versions of earlier releases: the names of their parts differ only in numbers.
            shape = re.compile(r"\d+".join(map(re.escape, table.name.split("*"))))
            parts = [file for file in files if shape.fullmatch(file)]
        return sorted(parts)[: table.files]

    def note_use(self, run_id: str | None = None) -> None:
        """Note that this job, and the active MLflow run or the one given, read this version.

        Once for each run, by rank 0 alone. A failure is a warning: no training ends by it.
        """
        run = run_id or _active_run()
        here = job.current()
        if not here.is_first or not (run or here.is_slipway) or run in self._reported:
            return
        self._reported.add(run)
        _attempt(
            "noted as read",
            lambda: self._client.datasets.note_use(
                self.name, self.version, project=self._project, run=run or None
            ),
        )
        base = os.environ.get("MLFLOW_TRACKING_URI", "").rstrip("/")
        if run and base.startswith(("http://", "https://")):
            # A thread, so that training does not wait for MLflow. The process waits for it at exit.
            log = partial(_attempt, "logged as an input of the MLflow run")
            threading.Thread(target=log, args=[partial(self._log_input, run, base)]).start()

    def _log_input(self, run: str, base: str) -> None:
        token = os.environ.get("MLFLOW_TRACKING_TOKEN")
        about = {
            "name": self.name,
            "digest": self.digest[:_MLFLOW_DIGEST],
            "source_type": "slipway",
            "source": json.dumps({"uri": f"slipway:{self._project}/{self.reference}"}),
            "profile": json.dumps(
                {"num_rows": self._version.rows, "num_files": self._version.files}
            ),
        }
        tags = [{"key": "mlflow.data.context", "value": "training"}]
        _send_patiently(
            f"{base}/api/2.0/mlflow/runs/log-inputs",
            json={"run_id": run, "datasets": [{"dataset": about, "tags": tags}]},
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )


def dataset(
    reference: str | None = None,
    *,
    project: str | None = None,
    client: Client | None = None,
) -> Dataset:
    """Return a version of a dataset: `digits:3`, or `digits` and `digits:latest` for the newest.

    In a job `digits` is the version the job was submitted with, and without a reference it is the
    one dataset of the job. `project` defaults to the one in use. Raises SlipwayError.
    """
    declared = job.current().datasets
    if reference is None:
        if len(declared) != 1:
            raise InvalidInput(
                "No dataset is named, and this is no job with exactly one.",
                field="reference",
                next_step='Name it: slipway.dataset("digits:3").',
            )
        reference = declared[0]
    if not _REFERENCE.match(reference):
        raise InvalidInput(
            "A dataset is named by its name and, if need be, a version: digits:3.",
            field="reference",
        )
    name, _, version = reference.partition(":")
    if not version:
        pinned = [item for item in declared if item.startswith(f"{name}:")]
        version = pinned[0].partition(":")[2] if pinned else "latest"
    client = client or Client()
    slug = project or default_project(client.url)
    if slug is None:
        raise InvalidInput(
            "No project is named and none is in use.",
            field="project",
            next_step='Pass project="…", or choose one with `slipway project use PROJECT`.',
        )
    result = Dataset(client, slug, client.datasets.version(name, version, project=slug))
    result.note_use()
    return result


def _send_patiently(url: str, **request: Any) -> None:
    """POST until the server is there and takes it, or about two minutes are over.

    A script that has ended meanwhile waits for it a few seconds and no longer: it holds its node.
    For what may be said twice. Raises httpx.HTTPError.
    """
    over_at = None
    for attempt in count(1):
        answer = None
        with contextlib.suppress(httpx.TransportError):
            answer = httpx.post(url, timeout=_NOTE_WITHIN_S, **request)
        if answer is not None and answer.status_code not in RETRIED_STATUSES:
            answer.raise_for_status()
            return
        asked_s = retry_after_s(answer.headers) if answer is not None else None
        wait_s = _PATIENCE.wait_s(attempt, asked_s=asked_s, jitter=random.random())  # noqa: S311
        if over_at is None and not threading.main_thread().is_alive():
            over_at = time.monotonic() + _AFTER_END_S
        if wait_s is None or (over_at is not None and time.monotonic() > over_at):
            raise httpx.TransportError("MLflow did not answer.")
        time.sleep(min(wait_s, _LOOK_EVERY_S))


def _active_run() -> str:
    """Return the id of the MLflow run this process logs to, "" where there is none."""
    mlflow = sys.modules.get("mlflow")
    active = mlflow.active_run() if mlflow is not None and hasattr(mlflow, "active_run") else None
    if active is not None:
        return str(active.info.run_id)
    return os.environ.get("MLFLOW_RUN_ID", "")


def _attempt(what: str, do: Callable[[], object]) -> None:
    try:
        do()
    except (SlipwayError, httpx.HTTPError) as error:
        warnings.warn(f"The dataset was not {what}: {error}", stacklevel=4)
