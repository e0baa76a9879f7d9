"""Checking closed drafts, and making them versions: the work of the control worker."""

import hashlib
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import F, Q

from portal.core import clock
from portal.datasets.bytes import entries_by_file
from portal.datasets.models import Dataset, DataTable, Version
from portal.datasets.signals import VersionReady, version_ready
from portal.datasets.table_process import TableUnreadable, read_table
from portal.datasets.tables import MAX_PARTS, Group, tables_in
from slipway.schemas.datasets import TableProblem, VersionState, key_of
from slipway.schemas.statistics import TableStatistics
from slipway.schemas.tables import ReadSettings, TableSchema, matches_pattern
from slipway.schemas.truncation import shorten, shorten_name

log = structlog.get_logger(__name__)
# A task may take 300 s. These are the limit for reading all tables of a version, and the time after
# which a task starts no further version.
READING_S = 150.0
_BEGINS_FOR_S = 90.0
# A worker that does not renew its lease for this long counts as dead, and another one checks the
# version.
LEASE = timedelta(seconds=60)
_RENEWED_AFTER_S = 10.0
_AT_ONCE = 2
_MOST_CHECKS = 3
_PLAIN_FILES = (
    "To store a file that is not a table unchanged, list it in plain_files (--plain-file, or "
    "Plain files on the page)."
)
_PROBLEMS_KEPT = 100


@dataclass
class _CheckFindings:
    """Results of the check of one version."""

    tables: list[DataTable] = field(default_factory=list)
    problems: list[TableProblem] = field(default_factory=list)
    bad_rows: int = 0
    rows: int | None = None
    tables_left_out: int = 0


class CheckLeaseLost(Exception):
    """Another worker checks the version by now, or there is nothing to check any more."""


class CheckLease:
    """One worker's lease on the check of a version. It expires unless the worker renews it."""

    def __init__(self, version: Version, until: datetime) -> None:
        self.version = version
        self._until = until
        self._renewed_at = time.monotonic()

    def renew(self) -> None:
        """Renew the lease. It is cheap, so call it often. Raises TurnLost."""
        if time.monotonic() - self._renewed_at < _RENEWED_AFTER_S:
            return
        until = clock.now() + LEASE
        versions = Version.objects.filter(
            pk=self.version.pk, state=VersionState.CHECKING, checker_until=self._until
        )
        if not versions.update(checker_until=until):
            raise CheckLeaseLost
        self._until, self._renewed_at = until, time.monotonic()


def check_waiting() -> int:
    """Check waiting versions, one after the other, and return their number.

    Safe beside itself, and safe to be killed: a check belongs to one worker at a time, and to
    another one soon after that has died.
    """
    count = 0
    began = time.monotonic()
    while time.monotonic() - began < _BEGINS_FOR_S and (turn := _claim()) is not None:
        try:
            _check(turn)
        except CheckLeaseLost:
            log.warning("dataset_check_lost", version=turn.version.pk)
        count += 1
    return count


def _claim() -> CheckLease | None:
    now = clock.now()
    waiting = Version.objects.filter(state=VersionState.CHECKING)
    if waiting.filter(checker_until__gt=now).count() >= _AT_ONCE:
        return None
    free = Q(checker_until__isnull=True) | Q(checker_until__lte=now)
    for version in waiting.filter(free).order_by("touched_at").select_related("dataset")[:_AT_ONCE]:
        versions = waiting.filter(free, pk=version.pk)
        if versions.update(checker_until=now + LEASE, checks=F("checks") + 1):
            return CheckLease(version, now + LEASE)
    return None


def _check(turn: CheckLease) -> None:
    version = turn.version
    if version.checks >= _MOST_CHECKS:
        _refuse(version, "The check failed three times.")
        return
    collision, digest, files, size_bytes = _walk(turn)
    details: dict[str, Any] = {"digest": digest, "files": files, "size_bytes": size_bytes}
    if collision:
        _refuse(version, f"{shorten_name(collision, 200)} is both a file and a folder.", **details)
        return
    ready = Version.objects.ready().filter(dataset=version.dataset).order_by("-number").first()
    if ready is not None and ready.digest == digest and _settings(ready) == _settings(version):
        reason = f"Nothing has changed: the files are the same as in {ready.reference}."
        _refuse(version, reason, same_as=ready.number, **details)
        return
    check_findings = _examine(turn)
    if check_findings.bad_rows and not version.allow_bad_rows:
        _refuse(
            version,
            _refusal(check_findings),
            bad_rows=check_findings.bad_rows,
            problems=[problem.model_dump() for problem in check_findings.problems],
            **details,
        )
        return
    _publish(version, check_findings, details)


def _refusal(check_findings: _CheckFindings) -> str:
    first = check_findings.problems[0]
    if not first.path:
        # A declaration is invalid, not a row.
        return shorten(first.message, 500)
    place = f", line {first.line}" if first.line else ""
    rows = f"{check_findings.bad_rows} bad {'row' if check_findings.bad_rows == 1 else 'rows'}"
    return f"{rows}; the first is in {shorten_name(first.path, 200)}{place}. {_PLAIN_FILES}"


def _settings(version: Version) -> ReadSettings:
    return ReadSettings.model_validate(version.settings)


def _refuse(version: Version, reason: str, **details: Any) -> None:
    Version.objects.move(
        version.pk,
        VersionState.REFUSED,
        reason=shorten(reason, 500),
        touched_at=clock.now(),
        checker_until=None,
        **details,
    )


def _publish(version: Version, check_findings: _CheckFindings, details: dict[str, Any]) -> None:
    """Assign the version its number and publish it, in one step."""
    with transaction.atomic():
        dataset = Dataset.objects.select_for_update(no_key=True).get(pk=version.dataset_id)
        number = dataset.last_number + 1
        made = Version.objects.move(
            version.pk,
            VersionState.READY,
            number=number,
            ready_at=clock.now(),
            rows=check_findings.rows,
            bad_rows=check_findings.bad_rows,
            problems=[problem.model_dump() for problem in check_findings.problems],
            tables_left_out=check_findings.tables_left_out,
            reason="",
            checker_until=None,
            **details,
        )
        if not made:
            return
        Dataset.objects.filter(pk=dataset.pk).update(last_number=number)
        DataTable.objects.filter(version=version).delete()
        DataTable.objects.bulk_create(check_findings.tables)
        version_ready.send_on_commit(VersionReady(version.pk))
    log.info("dataset_version_ready", version=version.pk, number=number, files=details["files"])


def _walk(turn: CheckLease) -> tuple[str, str, int, int]:
    """Return a path that is file and folder (or ""), the digest, how many files, and bytes.

    The digest is the SHA-256 of a line `key digest size` for each file, in the order of keys.
    """
    version = turn.version
    measure = hashlib.sha256()
    files = size_bytes = 0
    folders: set[str] = set()
    collision = ""
    for file in entries_by_file(version):
        turn.renew()
        first = file[0]
        measure.update(f"{first.key} {first.digest} {first.size_bytes}\n".encode())
        files += 1
        size_bytes += first.size_bytes
        parts = first.path.split("/")
        fresh = {"/".join(parts[:depth]) for depth in range(1, len(parts))} - folders
        if fresh:
            entries = version.entries.filter(key__in=[key_of(folder) for folder in fresh])
            collision = collision or entries.values_list("path", flat=True).first() or ""
            folders |= fresh if len(folders) < _MOST_FOLDERS else set()
    return collision, measure.hexdigest(), files, size_bytes


_MOST_FOLDERS = 100_000


def _examine(turn: CheckLease) -> _CheckFindings:
    version = turn.version
    check_findings = _CheckFindings()
    until = time.monotonic() + READING_S
    tables = tables_in(version)
    check_findings.tables_left_out = tables.left_out
    for group in tables.groups:
        left_s = until - time.monotonic()
        table = DataTable(
            version=version,
            name=group.name,
            format=group.format,
            paths=group.paths,
            files=group.parts,
            statistics=TableStatistics(rows=0, is_complete=False).model_dump(mode="json"),
        )
        check_findings.tables.append(table)
        if group.parts > len(group.paths):
            table.note, table.bad_rows = f"Not read: {_too_many_parts(group)}", 1
            check_findings.bad_rows += 1
            check_findings.problems.append(
                TableProblem(path=group.name, message=_too_many_parts(group))
            )
            continue
        if left_s < 1:
            table.note = "Not read: the other tables used all the time available for a version."
            continue
        try:
            result = read_table(version, group, budget_s=left_s, go_on=turn.renew)
        except TableUnreadable as error:
            log.warning("table_not_read", version=version.pk, table=group.name, why=str(error))
            table.note, table.bad_rows = f"Not read: {error}", 1
            check_findings.bad_rows += 1
            check_findings.problems.append(TableProblem(path=group.name, message=str(error)))
            continue
        statistics = TableStatistics.model_validate(result["statistics"])
        table.statistics = statistics.model_dump(mode="json")
        table.schema = TableSchema.model_validate(result["schema"]).model_dump(mode="json")
        table.preview, table.bad_rows = result["preview"], result["bad_rows"]
        if not statistics.is_complete:
            table.note = f"From the first {statistics.rows:,} rows; reading all takes too long."
        check_findings.bad_rows += table.bad_rows
        check_findings.rows = (check_findings.rows or 0) + statistics.rows
        check_findings.problems += [
            TableProblem.model_validate(problem) for problem in result["problems"]
        ]
    _require_declared_columns(version, check_findings)
    _require_plain_files(turn, check_findings)
    check_findings.problems = check_findings.problems[:_PROBLEMS_KEPT]
    return check_findings


def _too_many_parts(group: Group) -> str:
    return (
        f"It has {group.parts:,} parts; a table has at most {MAX_PARTS:,}. Write fewer, larger "
        "files, or rename them to form several tables."
    )


def _require_declared_columns(version: Version, check_findings: _CheckFindings) -> None:
    """Report declared columns that no table has: such a declaration would have no effect."""
    names = {
        column["name"]
        for table in check_findings.tables
        for column in table.schema.get("columns", [])
    }
    if any(not table.schema for table in check_findings.tables):
        return
    for name in sorted(_settings(version).types.keys() - names):
        check_findings.bad_rows += 1
        message = "A type is declared for this column, but no table has it."
        check_findings.problems.insert(
            0, TableProblem(path="", column=shorten_name(name, 200), message=message)
        )


def _require_plain_files(turn: CheckLease, check_findings: _CheckFindings) -> None:
    """Report patterns of plain files that match no file, because they would have no effect."""
    unmatched = _settings(turn.version).plain_files
    if unmatched:
        for path in turn.version.entries.files().values_list("path", flat=True).iterator():
            turn.renew()
            unmatched = [pattern for pattern in unmatched if not matches_pattern(path, pattern)]
    for pattern in unmatched:
        check_findings.bad_rows += 1
        name = shorten_name(pattern, 200)
        message = f"No file matches {name}, which is declared as a plain file (plain_files)."
        check_findings.problems.insert(0, TableProblem(path="", message=message))
