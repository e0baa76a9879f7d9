"""Create, save, restore and delete reports. Each save is a new version."""

from typing import Any

from django.db import transaction

from portal.accounts.audit import record
from portal.accounts.models import Project, User
from portal.core import clock
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.reports.models import Report, ReportVersion
from slipway.schemas.reports import Block, ReportIn

MOST_REPORTS = 1_000
MOST_CHARACTERS = 200_000


def create_report(*, project: Project, by: User, spec: ReportIn) -> Report:
    """Create a report with its first version.

    Raises InvalidInput for content that is too long, Conflict for one report too many.
    """
    blocks = _stored(spec.blocks)
    with transaction.atomic():
        if Report.objects.filter(project=project).count() >= MOST_REPORTS:
            raise Conflict(
                f"A project has at most {MOST_REPORTS:,} reports.",
                code="too_many_reports",
                next_step="Delete one that nobody needs.",
            )
        report = Report.objects.create(
            project=project, title=spec.title, created_by=by, saved_by=by
        )
        _add_version(report, by, spec.title, blocks)
        _audit("report.create", report, after={"version": 1, "blocks": len(blocks)})
    return report


def save_report(*, report: Report, by: User, spec: ReportIn, version: int) -> Report:
    """Save a new version of a report that was edited from `version`.

    Raises Conflict when somebody has saved another version meanwhile, InvalidInput for content
    that is too long.
    """
    return _save(report, by, spec.title, _stored(spec.blocks), version, verb="report.change")


def restore_version(*, report: Report, by: User, number: int, version: int) -> Report:
    """Save the content of an earlier version as a new one. Raises NotFound, or as `save_report`."""
    earlier = version_of(report, number)
    return _save(
        report, by, earlier.title, earlier.blocks, version, verb="report.restore", source=number
    )


def delete_report(*, report: Report) -> None:
    """Delete a report with all versions. Its share link stops working. Raises NotFound if gone."""
    with transaction.atomic():
        ReportVersion.objects.filter(report=report).delete()
        deleted, _ = Report.objects.filter(pk=report.pk).delete()
        if not deleted:
            raise NotFound
        _audit("report.delete", report, before={"version": report.version})


def version_of(report: Report, number: int) -> ReportVersion:
    """Return one version of a report with its author. Raises NotFound."""
    versions = ReportVersion.objects.filter(report=report, number=number)
    version = versions.select_related("saved_by").first()
    if version is None:
        raise NotFound
    return version


def _save(
    report: Report,
    by: User,
    title: str,
    blocks: list[dict[str, Any]],
    version: int,
    *,
    verb: str,
    source: int | None = None,
) -> Report:
    with transaction.atomic():
        saved = Report.objects.filter(pk=report.pk, version=version).update(
            version=version + 1, title=title, saved_by=by, saved_at=clock.now()
        )
        if not saved:
            raise _changed(report, version)
        current = Report.objects.of_project(report.project).get(pk=report.pk)
        _add_version(current, by, title, blocks)
        after = {"version": version + 1, "blocks": len(blocks)}
        restored = {} if source is None else {"restored_version": source}
        _audit(verb, current, before={"version": version}, after=after | restored)
    return current


def _add_version(report: Report, by: User, title: str, blocks: list[dict[str, Any]]) -> None:
    ReportVersion.objects.create(
        report=report, number=report.version, title=title, blocks=blocks, saved_by=by
    )


def _stored(blocks: list[Block]) -> list[dict[str, Any]]:
    """Return blocks as JSON. Raises InvalidInput if they are too long together."""
    stored = [block.model_dump(mode="json") for block in blocks]
    characters = sum(len(str(block)) for block in stored)
    if characters > MOST_CHARACTERS:
        raise InvalidInput(
            f"The blocks have {characters:,} characters together; at most {MOST_CHARACTERS:,} are "
            "allowed.",
            code="report_too_long",
            field="blocks",
            next_step="Split the report in two.",
        )
    return stored


def _changed(report: Report, version: int) -> Conflict | NotFound:
    current = Report.objects.select_related("saved_by").filter(pk=report.pk).first()
    if current is None:
        return NotFound()
    return Conflict(
        f"{current.saved_by.display_name} saved version {current.version} at "
        f"{current.saved_at:%Y-%m-%d %H:%M} UTC, and you edited version {version}.",
        code="report_changed",
        field="version",
        next_step=f"Read version {current.version}, merge your changes, and save with its number.",
    )


def _audit(
    verb: str,
    report: Report,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
) -> None:
    record(
        verb,
        kind="report",
        target=report,
        label=report.title,
        project=report.project,
        before=before,
        after=after,
    )
