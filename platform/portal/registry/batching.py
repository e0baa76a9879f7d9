"""Request batching of a version: the mode its author stated, and the one a replica proved."""

from dataclasses import dataclass
from typing import Literal

from django.db import transaction
from pydantic import ValidationError

from portal.accounts import audit
from portal.accounts.models import Project
from portal.core import clock
from portal.registry.catalog import find_model, find_version
from portal.registry.models import VersionRecord
from portal.registry.records import ensure_record
from slipway.schemas.batching import BatchingOut
from slipway.schemas.serving import BatchingMode, BatchingReport, BatchingVerdict

_NO_GOLDEN = (
    "No golden rows are recorded, so row independence cannot be proved. Record them with "
    "slipway.register(…, golden=…), or choose the mode rows."
)
_NOT_YET = (
    "Not proved yet: before it is ready, each replica predicts the golden rows alone, together "
    "and beside other rows."
)


@dataclass(frozen=True)
class BatchingStatement:
    """The mode that an author stated, and where."""

    mode: BatchingMode
    place: Literal["registration", "metadata"]


def statement_of(record: VersionRecord) -> BatchingStatement | None:
    """Return the stated mode of a version. A later statement overrides the model's metadata."""
    if record.given_batching:
        return BatchingStatement(BatchingMode(record.given_batching), "registration")
    if record.noted_batching in list(BatchingMode):
        return BatchingStatement(BatchingMode(record.noted_batching), "metadata")
    return None


def describe_batching(record: VersionRecord, *, has_golden: bool) -> BatchingOut:
    """Return the mode of a version, the reason, and the gain of merging requests."""
    stated = statement_of(record)
    report = _report_of(record) or _expected(stated, has_golden=has_golden)
    return BatchingOut(
        mode=report.mode,
        stated=stated.mode if stated else None,
        stated_in=stated.place if stated else None,
        verdict=report.verdict,
        reason=report.reason,
        gain=_gain(report),
        alone_us=report.alone_us,
        merged_us=report.merged_us,
        merged_rows=report.merged_rows,
    )


def _report_of(record: VersionRecord) -> BatchingReport | None:
    if record.batching_report is None:
        return None
    try:
        return BatchingReport.model_validate(record.batching_report)
    except ValidationError:  # another release wrote it
        return None


def _expected(stated: BatchingStatement | None, *, has_golden: bool) -> BatchingReport:
    """Return the expected mode of a replica before any has reported."""
    mode, reason = BatchingMode.REQUESTS, _NOT_YET if has_golden else _NO_GOLDEN
    if stated is not None:
        place = "" if stated.place == "registration" else " in the metadata of the model"
        mode, reason = stated.mode, f"Its author declared {stated.mode.value}{place}."
        if mode is BatchingMode.ROWS and has_golden:
            reason += " Each replica verifies this with the golden rows before it is ready."
    return BatchingReport(mode=mode, verdict=BatchingVerdict.UNPROVED, reason=reason)


def _gain(report: BatchingReport) -> str | None:
    """Return a sentence about the gain of merging, measured or possible."""
    if not report.alone_us or not report.merged_us or report.merged_rows is None:
        return None
    factor = report.alone_us / report.merged_us
    gains = "gains" if report.mode is BatchingMode.ROWS else "would gain"
    measured = (
        f"a row takes {_milliseconds(report.alone_us)} alone and {_milliseconds(report.merged_us)} "
        f"among {report.merged_rows} in a call"
    )
    if factor < 1.2:
        return f"Merging {gains} almost nothing: {measured}."
    return f"Merging {gains} up to {factor:.1f} times as many rows a second: {measured}."


def _milliseconds(microseconds: float) -> str:
    return f"{microseconds / 1000:.3g} ms"


def state_batching(
    *, project: Project, model: str, number: int, mode: BatchingMode | None
) -> VersionRecord:
    """Store the mode that an author states. None leaves it to the golden rows.

    Endpoints use it from the next revision of the version on: a revision never changes.
    """
    details = find_model(project.pk, model)
    record = ensure_record(project, details, find_version(project.pk, model, number))
    with transaction.atomic():
        before = record.given_batching
        VersionRecord.objects.filter(pk=record.pk).update(
            given_batching=mode.value if mode else "", batching_report=None
        )
        audit.record(
            "model.batching",
            kind="model_version",
            target=record,
            label=f"{model} version {number}",
            project=project,
            before={"batching": before or None},
            after={"batching": mode.value if mode else None},
        )
    record.refresh_from_db()
    return record


def note_batching(
    *,
    project: Project,
    model: str,
    number: int,
    stated: BatchingMode | None,
    report: BatchingReport,
) -> None:
    """Store the report of a replica, unless another mode has been stated since."""
    details = find_model(project.pk, model)
    record = ensure_record(project, details, find_version(project.pk, model, number))
    now = statement_of(record)
    if (now.mode if now else None) is not stated:
        return
    VersionRecord.objects.filter(pk=record.pk, given_batching=record.given_batching).update(
        batching_report=report.model_dump(mode="json"), batching_reported_at=clock.now()
    )
