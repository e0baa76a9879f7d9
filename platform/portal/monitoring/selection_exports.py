"""Export of a selection of predictions as CSV or JSON lines, from its dataset version."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from portal.core.errors import Conflict, NotFound, Unavailable
from portal.core.streams import ByteStream, release_connection
from portal.datasets.bytes import content_of, entries_of
from portal.datasets.models import Version
from portal.endpoints.models import Endpoint
from portal.monitoring.analyst import AnalysisFailed, analyst
from portal.monitoring.exports import download, export_slot, pieces_of
from portal.monitoring.models import Erasure, Selection
from slipway.schemas.monitoring import ExportFormat

# Each export has a copy of its rows on the disk until its client has read all.
_COPIES: Final = 4
_TRY_AGAIN_S: Final = 10
_copies = threading.BoundedSemaphore(_COPIES)


class SelectionExport:
    """The bytes of an export. Iterate once, and close it afterwards."""

    def __init__(self, selection: Selection, version: Version, file_format: ExportFormat) -> None:
        """Count the rows. Raises Unavailable if they cannot be read now."""
        self._format = file_format
        self._stack = ExitStack()
        if not _copies.acquire(blocking=False):
            raise Unavailable(
                f"{_COPIES} selections are already being exported.",
                retry_after_s=_TRY_AGAIN_S,
                next_step="Try again when one of them completes, or download the dataset.",
            )
        self._stack.callback(_copies.release)
        try:
            self._process = self._stack.enter_context(analyst())
            self._source = Path(self._process.folder) / "predictions.parquet"
            with self._source.open("wb") as file:
                file.writelines(content_of(entries_of(version, "predictions.parquet")))
            self._erased = _erased_ids(selection)
            release_connection()
            with export_slot(self._process):
                details = self._process.request(
                    "table_facts", source=str(self._source), erased=self._erased
                )
        except AnalysisFailed as error:
            self.close()
            raise Unavailable(
                f"The rows cannot be read: {error}.",
                next_step="Try again, or download the files of the dataset version.",
            ) from error
        except BaseException:
            self.close()
            raise
        self.rows: int = details["rows"]
        self.erased: int = details["erased"]
        self._groups: int = details["groups"]

    def close(self) -> None:
        """Stop the process, delete its files, and release the slot."""
        self._stack.close()

    def __iter__(self) -> Iterator[bytes]:
        target = Path(self._process.folder) / "lines"
        for group in range(self._groups):
            with export_slot(self._process):
                self._process.request(
                    "write_table",
                    source=str(self._source),
                    group=group,
                    target=str(target),
                    file_format=self._format,
                    erased=self._erased,
                )
            yield from pieces_of(target)


def _erased_ids(selection: Selection) -> list[str]:
    """Return the predictions of the endpoint with a completed or pending erasure."""
    ids: set[str] = set()
    for erasure in Erasure.objects.filter(endpoint=selection.endpoint_id).iterator():
        ids.update(erasure.prediction_ids)
        if not erasure.is_own:
            ids.add(erasure.reference)
    return sorted(ids)


def selection_answer(
    endpoint: Endpoint, selection_id: str, file_format: ExportFormat
) -> ByteStream:
    """Return the rows of a selection as a download. Raises NotFound, Conflict."""
    selection = (
        Selection.objects.filter(endpoint=endpoint, pk=selection_id)
        .select_related("dataset")
        .first()
    )
    if selection is None:
        raise NotFound("There is no such selection.")
    version = Version.objects.ready().filter(pk=selection.version_id).first()
    if version is None:
        raise Conflict(
            selection.reason or "Its dataset version is not complete yet, or is deleted.",
            code="no_version",
            next_step="Wait until the selection is complete, or create another one.",
        )
    name = f"{selection.dataset.name}-{version.number or version.pk}"
    return download(SelectionExport(selection, version, file_format), name, file_format)
