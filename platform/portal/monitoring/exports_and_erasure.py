"""Runs dataset exports and deletions of captured predictions."""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog
from django.db import transaction

from portal.accounts import audit
from portal.core import clock
from portal.core.errors import SlipwayError
from portal.datasets.models import Version
from portal.datasets.services.datasets import delete_version
from portal.datasets.services.drafts import append_piece, commit_draft, open_draft
from portal.monitoring.analyst import AnalysisFailed, Analyst, analyst
from portal.monitoring.label_basis import stored_basis
from portal.monitoring.models import CapturedHour, EmptyLabel, Erasure, Label, Selection
from portal.monitoring.monitor_settings import monitor_of
from portal.monitoring.paths import (
    flat_hour,
    hour_of_prediction,
    parts_of,
    raw_files_of,
    raw_hour,
    raw_root,
)
from portal.monitoring.prediction_search import ids_of, parse_filters
from portal.monitoring.signature_types import column_types, signatures_of
from slipway.schemas.datasets import PIECE_BYTES
from slipway.schemas.truncation import shorten

log = structlog.get_logger(__name__)
_AT_ONCE = 10
_REWRITES = ".rewriting"


def run_pending() -> None:
    """Run pending selections and erasures, oldest first."""
    selections = Selection.objects.filter(done_at=None).select_related("endpoint", "dataset", "by")
    erasures = Erasure.objects.filter(done_at=None).select_related("endpoint")
    with analyst() as analyst_process:
        for selection in selections.order_by("pk")[:_AT_ONCE]:
            run_selection(analyst_process, selection)
        for gone in erasures.order_by("pk")[:_AT_ONCE]:
            try:
                _erase(analyst_process, gone)
            except (AnalysisFailed, OSError) as error:
                log.warning("predictions_not_deleted", erasure=gone.pk, reason=str(error)[:200])


def run_selection(analyst_process: Analyst, selection: Selection) -> None:
    """Create the requested dataset version, or store the reason for a failure.

    Two workers may run it at the same time: the first to finish wins, and the other deletes its
    draft.
    """
    try:
        made = _export_selection(analyst_process, selection)
        reason = "" if made.draft else "No prediction matches, or none has a label."
        if not _end(selection, made, reason) and made.draft:
            delete_version(version=made.draft)
    except AnalysisFailed as error:
        _end(selection, _SelectionResult(), f"The predictions could not be read: {error}.")
    except SlipwayError as error:
        _end(selection, _SelectionResult(), error.message)


def _end(selection: Selection, made: "_SelectionResult", reason: str) -> bool:
    """End a selection and commit its draft. Returns False if another worker has ended it."""
    draft = made.draft
    with transaction.atomic():
        done = Selection.objects.filter(pk=selection.pk, done_at=None).update(
            done_at=clock.now(),
            rows=made.rows,
            version=draft,
            revisions=made.revisions,
            reason=shorten(reason, 500),
        )
        if not done:
            return False
        if draft is not None:
            commit_draft(draft=draft)
        audit.record(
            "selection.finish",
            kind="selection",
            target=selection,
            label=f"{selection.endpoint.name} to {selection.dataset.name}",
            project=selection.dataset.project,
            after={"rows": made.rows, "version": draft.pk if draft else None},
        )
    return True


@dataclass(frozen=True)
class _SelectionResult:
    """Result of a selection: nothing, or a draft with all its files."""

    rows: int = 0
    revisions: list[str] = field(default_factory=list)
    draft: Version | None = None


def _export_selection(analyst_process: Analyst, selection: Selection) -> _SelectionResult:
    filters = parse_filters(selection.filters)
    ids = ids_of(selection.endpoint, filters)
    labels = _labels(selection, sorted(ids.ids))
    monitor = monitor_of(selection.endpoint)
    with tempfile.TemporaryDirectory(dir=analyst_process.folder) as folder, merge_lock():
        target = Path(folder) / "predictions.parquet"
        value = analyst_process.request(
            "export",
            paths=ids.paths,
            raw=raw_files_of(selection.endpoint_id, ids.ids),
            target=str(target),
            ids=sorted(ids.ids),
            signatures=signatures_of(selection.endpoint),
            types=column_types(selection.endpoint),
            basis=stored_basis(monitor).as_json(),
            labels=labels,
            only_labelled=selection.only_labelled,
        )
        if not value["rows"]:
            return _SelectionResult()
        draft = open_draft(
            dataset=selection.dataset,
            by=selection.by,
            note=f"{value['rows']:,} predictions of the endpoint "
            f"{selection.endpoint.name} ({selection.pk}).",
        )
        _send(draft, selection, target)
    return _SelectionResult(value["rows"], value["revisions"], draft)


def _send(draft: Version, selection: Selection, source: Path) -> None:
    size = source.stat().st_size
    with source.open("rb") as file:
        for offset in range(0, max(1, size), PIECE_BYTES):
            append_piece(
                draft=draft,
                by=selection.by,
                path="predictions.parquet",
                offset=offset,
                size_bytes=size,
                chunks=iter([file.read(PIECE_BYTES)]),
            )


def _labels(selection: Selection, ids: list[str]) -> dict[str, list[Any]]:
    labels: dict[str, list[Any]] = {}
    for start in range(0, len(ids), 500):
        rows = Label.objects.filter(
            endpoint=selection.endpoint, prediction_id__in=ids[start : start + 500], is_current=True
        )
        for label in rows.order_by("created_at", "pk"):
            labels[f"{label.prediction_id}/{label.row}"] = [label.value]
    return labels


def _erase(analyst_process: Analyst, erasure: Erasure) -> None:
    """Delete predictions from flat files, then from raw ones, then their labels."""
    endpoint = erasure.endpoint
    hours = list(CapturedHour.objects.filter(endpoint=endpoint))
    own = [erasure.reference] if erasure.is_own else []
    ids = [] if erasure.is_own else [erasure.reference]
    if not erasure.is_own:
        at = hour_of_prediction(erasure.reference)
        hours = [hour for hour in hours if at is None or abs((hour.hour - at).days) <= 1]
    value = analyst_process.request("erase", paths=parts_of(hours), ids=ids, own_ids=own)
    ids = sorted({*ids, *value["ids"]})
    with merge_lock():
        raw = [
            str(path)
            for hour in hours
            for path in raw_hour(endpoint.pk, hour.hour).glob("*.parquet")
        ]
        also = analyst_process.request("erase", paths=raw, ids=ids, own_ids=[])
    with transaction.atomic():
        Label.objects.filter(endpoint=endpoint, prediction_id__in=ids).delete()
        for model in (Label, EmptyLabel):
            rows = model.objects.filter(endpoint=endpoint)
            rows.filter(is_own=erasure.is_own, reference=erasure.reference).delete()
            rows.filter(is_own=False, reference__in=ids).delete()
        touched = [hour.pk for hour in hours]
        CapturedHour.objects.filter(pk__in=touched).update(is_stale=True)
        done = Erasure.objects.filter(pk=erasure.pk, done_at=None).update(
            done_at=clock.now(), rows=max(value["rows"], also["rows"]), prediction_ids=ids
        )
        if done:
            audit.record(
                "prediction.erase",
                kind="erasure",
                target=erasure,
                label=endpoint.name,
                project=endpoint.project,
                after={"rows": max(value["rows"], also["rows"])},
            )


@contextmanager
def merge_lock() -> Iterator[None]:
    """Prevent the gateway's shipper from merging raw files meanwhile, by a file lock."""
    raw_root().mkdir(parents=True, exist_ok=True)
    lock = os.open(raw_root() / _REWRITES, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


__all__ = ["flat_hour", "merge_lock", "run_pending", "run_selection"]
