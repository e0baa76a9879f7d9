"""The audit log: lists and exports."""

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Literal

import orjson
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, SignedIn, gated_project
from portal.accounts.models.audit import AuditEvent, AuditQuerySet
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageQuery, audit_out, page_of
from portal.core.pagination import paginate
from slipway.schemas.accounts import AuditOut, Role, Scope
from slipway.schemas.base import Line, PageOf
from slipway.schemas.dates import Moment

router = Router(tags=["Audit"])
_COLUMNS = list(AuditOut.model_fields)
Short = Annotated[Line, Field(max_length=254)]


class AuditFilters(BaseModel):
    """Filters, all of which must match."""

    actor: Short = ""
    verb: Short = ""
    target_kind: Short = ""
    target_id: Short = ""
    project: Short = ""
    team: Short = ""
    since: Moment | None = None
    until: Moment | None = None


class AuditQuery(PageQuery, AuditFilters):
    """Filters, and a page of the results."""


class ExportQuery(AuditFilters):
    """Filters, and the format of the file."""

    format: Literal["csv", "jsonl"] = "csv"


def _matching(events: AuditQuerySet, query: AuditFilters) -> AuditQuerySet:
    return events.matching(
        actor=query.actor,
        verb=query.verb,
        target_kind=query.target_kind,
        target_id=query.target_id,
        project=query.project,
        team=query.team,
        since=query.since,
        until=query.until,
    )


@router.get("/audit", auth=gate(SignedIn(Scope.AUDIT_READ)), response=PageOf[AuditOut])
def list_audit_events(request: HttpRequest, query: Query[AuditQuery]) -> PageOf[AuditOut]:
    """List your own changes and those in objects you maintain. Administrators see all."""
    events = AuditEvent.objects.visible_to(require_principal(request).user)
    page = paginate(_matching(events, query), cursor=query.cursor, limit=query.limit)
    return page_of(page, audit_out)


@router.get("/audit/export", auth=gate(SignedIn(Scope.AUDIT_READ)), response=None)
def export_audit_events(request: HttpRequest, query: Query[ExportQuery]) -> StreamingHttpResponse:
    """Stream the matching events as CSV or JSON lines, newest first."""
    events = AuditEvent.objects.visible_to(require_principal(request).user)
    rows = _matching(events, query).order_by("-pk").iterator(chunk_size=500)
    name = f"slipway-audit.{query.format}"
    kind = "text/csv; charset=utf-8" if query.format == "csv" else "application/jsonl"
    lines = _csv(rows) if query.format == "csv" else _jsonl(rows)
    response = StreamingHttpResponse(lines, content_type=kind)
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@router.get(
    "/projects/{project}/audit",
    auth=gate(ProjectRole(Role.MAINTAINER, Scope.AUDIT_READ)),
    response=PageOf[AuditOut],
)
def list_project_audit_events(
    request: HttpRequest, project: str, query: Query[AuditQuery]
) -> PageOf[AuditOut]:
    """List the audit events of one project."""
    events = AuditEvent.objects.filter(project_id=gated_project(request).pk)
    page = paginate(_matching(events, query), cursor=query.cursor, limit=query.limit)
    return page_of(page, audit_out)


def _cell(value: object) -> str:
    """Escape a cell that spreadsheets would evaluate as a formula."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    text = orjson.dumps(value).decode() if isinstance(value, dict | list) else str(value)
    return f"'{text}" if text[:1] in "=+-@\t\r" else text


def _csv(rows: Iterator[AuditEvent]) -> Iterator[str]:
    buffer = io.StringIO()
    writer = csv.writer(buffer)
    writer.writerow(_COLUMNS)
    for row in rows:
        shown = audit_out(row)
        writer.writerow([_cell(getattr(shown, column)) for column in _COLUMNS])
        if buffer.tell() > 65_536:
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _jsonl(rows: Iterator[AuditEvent]) -> Iterator[bytes]:
    for row in rows:
        yield orjson.dumps(audit_out(row).model_dump()) + b"\n"
