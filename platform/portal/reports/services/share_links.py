"""Share links of reports. Only a hash of their secret is stored."""

import re
import secrets
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from portal.accounts.audit import record
from portal.accounts.models import User
from portal.accounts.tokens import hash_of
from portal.core import clock
from portal.core.errors import NotFound
from portal.reports.models import Report

# 240 random bits.
_SECRET = re.compile(r"\A[A-Za-z0-9_-]{40}\Z")


@dataclass(frozen=True)
class NewShareLink:
    """A share link with its secret, which is not stored."""

    secret: str
    shared_at: datetime


def share_report(*, report: Report, by: User) -> NewShareLink:
    """Turn the share link on, or replace it. An older link stops working. Raises NotFound."""
    secret, timestamp = secrets.token_urlsafe(30), clock.now()
    with transaction.atomic():
        changed = Report.objects.filter(pk=report.pk).update(
            share_hash=hash_of(secret), shared_at=timestamp, shared_by=by
        )
        if not changed:
            raise NotFound
        _audit("report.share", report)
    return NewShareLink(secret, timestamp)


def stop_sharing(*, report: Report) -> None:
    """Turn the share link off. Idempotent."""
    with transaction.atomic():
        changed = (
            Report.objects.filter(pk=report.pk)
            .exclude(share_hash="")
            .update(share_hash="", shared_at=None, shared_by=None)
        )
        if changed:
            _audit("report.unshare", report)


def report_of_secret(secret: str) -> Report | None:
    """Return the report that a share link opens, or None. Archived projects have none."""
    if _SECRET.match(secret) is None:
        return None
    reports = Report.objects.filter(share_hash=hash_of(secret), project__archived_at__isnull=True)
    return reports.select_related("project", "created_by", "saved_by").first()


def _audit(verb: str, report: Report) -> None:
    record(verb, kind="report", target=report, label=report.title, project=report.project)
