"""Datasets: made, filled with versions, looked into."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from slipway.connection import Connection, Download, address
from slipway.data_files import batches, bundles, files_under
from slipway.errors import Conflict, InvalidInput
from slipway.pages import Pages
from slipway.resources.requests import build
from slipway.schemas.base import PageOf
from slipway.schemas.datasets import (
    CommitIn,
    DataFileIn,
    DataFileOut,
    DatasetEdit,
    DatasetIn,
    DatasetOut,
    DatasetVersionOut,
    DataTableOut,
    DifferenceOut,
    DraftIn,
    FilesIn,
    MissingPieces,
    PiecesStored,
    PreviewOut,
    UseIn,
    UseOut,
    VersionState,
)
from slipway.schemas.tables import ReadSettings

_FIRST_LOOK_S, _LATER_LOOKS_S = 0.05, 1.0
_PROBLEMS_TOLD = 5
Progress = Callable[[int, int], None]


class Datasets:
    """The datasets of a project. `version` is a number, `latest`, or the id of a draft."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, dataset: str, *, project: str, version: int | str | None = None) -> str:
        """Return the address of the page of a dataset, or of a version, for a browser."""
        behind = () if version is None else ("v", str(version))
        return f"{self._connection.url}{address('p', project, 'datasets', dataset, *behind)}"

    def list(self, *, project: str, search: str | None = None) -> Pages[DatasetOut]:
        """List datasets, newest first."""
        segments = ("projects", project, "datasets")
        return Pages(self._connection, segments, PageOf[DatasetOut], {"q": search})

    def get(self, dataset: str, *, project: str) -> DatasetOut:
        """Return one dataset."""
        return self._connection.fetch(DatasetOut, "GET", *_path(project, dataset))

    def create(self, name: str, *, project: str, description: str = "") -> DatasetOut:
        """Create an empty dataset, or raise Conflict if the name is taken."""
        body = build(DatasetIn, name=name, description=description)
        return self._connection.fetch(
            DatasetOut, "POST", "projects", project, "datasets", body=body
        )

    def edit(self, dataset: str, *, project: str, description: str) -> DatasetOut:
        """Change the description."""
        body = build(DatasetEdit, description=description)
        return self._connection.fetch(DatasetOut, "PATCH", *_path(project, dataset), body=body)

    def delete(self, dataset: str, *, project: str) -> None:
        """Delete a dataset with all versions. `restore` undoes it for three days."""
        self._connection.send("DELETE", *_path(project, dataset))

    def restore(self, dataset: str, *, project: str) -> DatasetOut:
        """Bring back a deleted dataset."""
        return self._connection.fetch(DatasetOut, "POST", *_path(project, dataset), "restore")

    def versions(self, dataset: str, *, project: str) -> Pages[DatasetVersionOut]:
        """List the versions that are ready, newest first."""
        segments = (*_path(project, dataset), "versions")
        return Pages(self._connection, segments, PageOf[DatasetVersionOut])

    def version(
        self, dataset: str, version: int | str = "latest", *, project: str
    ) -> DatasetVersionOut:
        """Return one version."""
        return self._connection.fetch(
            DatasetVersionOut, "GET", *_version_path(project, dataset, version)
        )

    def delete_version(self, dataset: str, version: int | str, *, project: str) -> None:
        """Delete a version. `restore_version` undoes it for three days."""
        self._connection.send("DELETE", *_version_path(project, dataset, version))

    def restore_version(self, dataset: str, version: int, *, project: str) -> DatasetVersionOut:
        """Bring back a deleted version."""
        segments = (*_version_path(project, dataset, version), "restore")
        return self._connection.fetch(DatasetVersionOut, "POST", *segments)

    def push(
        self,
        dataset: str,
        *sources: str | Path,
        project: str,
        note: str = "",
        allow_bad_rows: bool = False,
        types: Mapping[str, str] | None = None,
        missing: Sequence[str] | None = None,
        encoding: str | None = None,
        separator: str | None = None,
        sheet: str | None = None,
        plain_files: Sequence[str] | None = None,
        progress: Progress | None = None,
        timeout_s: float = 3600.0,
    ) -> DatasetVersionOut:
        """Upload the files and folders as a new version of the dataset, creating it if necessary.

        Only pieces the project does not have are sent, so an interrupted push can be
        resumed. `progress` receives the number of finished files, and of bytes sent. Files that
        are those of the latest version make no new one: that one is returned. `types` declares
        those of columns (`{"zip": "string", "price": "decimal(18, 2)"}`), `missing` the words that
        mean a missing value, `encoding` and `separator` those of text files, `sheet` the one to
        read of Excel workbooks, `plain_files` patterns of files that are stored as they are and not
        read as tables (`["docs/*", "*.xlsx"]`). Raises InvalidInput for bad rows, with line and
        column, unless they are allowed. Then nothing is stored.
        """
        settings = build(
            ReadSettings,
            types=dict(types or {}),
            missing=None if missing is None else list(missing),
            encoding=encoding,
            separator=separator,
            sheet=sheet,
            plain_files=list(plain_files or []),
        )
        draft = self.upload_draft(dataset, *sources, project=project, note=note, progress=progress)
        at = _version_path(project, dataset, draft.id)
        committed = self._connection.fetch(
            DatasetVersionOut,
            "POST",
            *at,
            "commit",
            body=CommitIn(allow_bad_rows=allow_bad_rows, settings=settings),
        )
        return self._outcome(self._wait_until_checked(committed, project, timeout_s), project)

    def upload_draft(
        self,
        dataset: str,
        *sources: str | Path,
        project: str,
        note: str = "",
        progress: Progress | None = None,
    ) -> DatasetVersionOut:
        """Upload files and folders as a draft, which `push` makes a version. See `push`."""
        try:
            self.create(dataset, project=project)
        except Conflict as error:
            if error.code != "name_taken":
                raise
        segments = (*_path(project, dataset), "versions")
        body = build(DraftIn, note=note)
        draft = self._connection.fetch(DatasetVersionOut, "POST", *segments, body=body)
        files = sent_bytes = 0
        for batch in batches(files_under(sources)):
            named = [value for _file, value in batch]
            for bundle in bundles(batch, self._missing(project, dataset, draft.id, named)):
                self._connection.upload(
                    PiecesStored, *_path(project, dataset), "pieces", content=bundle
                )
                bundle.clear()
                sent_bytes += bundle.content_bytes
                if progress is not None:
                    progress(files, sent_bytes)
            files += len(batch)
            if progress is not None:
                progress(files, sent_bytes)
        return draft

    def _missing(
        self, project: str, dataset: str, draft: str, files: Sequence[DataFileIn]
    ) -> Sequence[str]:
        segments = (*_version_path(project, dataset, draft), "files")
        body = FilesIn(files=[*files])
        return self._connection.fetch(MissingPieces, "POST", *segments, body=body).missing

    def _wait_until_checked(
        self, version: DatasetVersionOut, project: str, timeout_s: float
    ) -> DatasetVersionOut:
        """Wait until a version has been checked."""
        deadline = time.monotonic() + timeout_s
        pause_s = _FIRST_LOOK_S
        while version.state == VersionState.CHECKING:
            if time.monotonic() > deadline:
                raise TimeoutError(f"The version {version.id} is still checked.")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _LATER_LOOKS_S)
            version = self.version(version.dataset, version.id, project=project)
        return version

    def _outcome(self, version: DatasetVersionOut, project: str) -> DatasetVersionOut:
        if version.state == VersionState.READY:
            return version
        if version.same_as is not None:
            self.delete_version(version.dataset, version.id, project=project)
            return self.version(version.dataset, version.same_as, project=project)
        items = [
            f"{table_problem.path}{f', line {table_problem.line}' if table_problem.line else ''}"
            f"{f', column {table_problem.column}' if table_problem.column else ''}: "
            f"{table_problem.message}"
            for table_problem in version.problems[:_PROBLEMS_TOLD]
        ]
        others = version.bad_rows - len(items)
        if items and others > 0:
            items.append(f"… and {others:,} more.")
        raise InvalidInput(
            "\n".join([f"The version was refused. {version.reason}", *items]),
            code="bad_rows" if version.problems else "version_refused",
            field="files",
            next_step="Correct the rows, or allow them (allow_bad_rows, --allow-bad-rows). Declare "
            "files that are no tables (plain_files, --plain-file).",
        )

    def files(
        self,
        dataset: str,
        version: int | str = "latest",
        *,
        project: str,
        search: str | None = None,
    ) -> Pages[DataFileOut]:
        """List the files of a version by path."""
        segments = (*_version_path(project, dataset, version), "files")
        return Pages(self._connection, segments, PageOf[DataFileOut], {"q": search})

    def manifest(
        self, dataset: str, version: int | str = "latest", *, project: str
    ) -> AbstractContextManager[Download]:
        """Receive every file with its digest and pieces, a line of JSON each."""
        return self._connection.stream(*_version_path(project, dataset, version), "manifest")

    def content(
        self, dataset: str, version: int | str, path: str, *, project: str, offset: int = 0
    ) -> AbstractContextManager[Download]:
        """Receive one file from byte `offset` on: `with … as file: for chunk in file`."""
        segments = (*_version_path(project, dataset, version), "content")
        return self._connection.stream(*segments, query={"path": path, "offset": offset})

    def archive(
        self,
        dataset: str,
        version: int | str = "latest",
        *,
        project: str,
        after: str | None = None,
        below_bytes: int | None = None,
    ) -> AbstractContextManager[Download]:
        """Receive the files as a tar, from the one behind the key `after` on."""
        segments = (*_version_path(project, dataset, version), "archive")
        query = {"after": after, "below_bytes": below_bytes}
        return self._connection.stream(*segments, query=query)

    def tables(
        self, dataset: str, version: int | str = "latest", *, project: str
    ) -> Sequence[DataTableOut]:
        """Return the tables of a version with their schema and statistics."""
        return self._connection.fetch_list(
            DataTableOut, *_version_path(project, dataset, version), "tables"
        )

    def preview(
        self,
        dataset: str,
        version: int | str = "latest",
        *,
        project: str,
        table: str | None = None,
        offset: int = 0,
        limit: int = 50,
    ) -> PreviewOut:
        """Return some of the first rows of a table, the first one unless named."""
        query = {"table": table, "offset": offset, "limit": limit}
        segments = (*_version_path(project, dataset, version), "preview")
        return self._connection.fetch(PreviewOut, "GET", *segments, query=query)

    def changes(
        self, dataset: str, version: int | str = "latest", *, project: str, since: int | None = None
    ) -> DifferenceOut:
        """Compare a version with an earlier one, the one before unless named."""
        segments = (*_version_path(project, dataset, version), "changes")
        return self._connection.fetch(DifferenceOut, "GET", *segments, query={"since": since})

    def uses(
        self, dataset: str, version: int | str = "latest", *, project: str
    ) -> Sequence[UseOut]:
        """Return the jobs and runs that read a version, and the models that came of them."""
        return self._connection.fetch_list(
            UseOut, *_version_path(project, dataset, version), "uses"
        )

    def note_use(
        self, dataset: str, version: int | str, *, project: str, run: str | None = None
    ) -> UseOut:
        """Note that this job (by its token) or an MLflow run reads a version."""
        segments = (*_version_path(project, dataset, version), "uses")
        return self._connection.fetch(UseOut, "POST", *segments, body=build(UseIn, run=run))


def _path(project: str, dataset: str) -> tuple[str, str, str, str]:
    return ("projects", project, "datasets", dataset)


def _version_path(project: str, dataset: str, version: int | str) -> tuple[str, ...]:
    return (*_path(project, dataset), "versions", str(version))
