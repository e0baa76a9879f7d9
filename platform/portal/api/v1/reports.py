"""Reports: pages of text with charts, tables and other objects of a project."""

from typing import Annotated

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import content_disposition_header
from ninja import Query, Router, Status
from pydantic import BaseModel, Field

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import PageParameters, SearchParameters, page_of, user_out
from portal.core.pagination import paginate
from portal.reports.content.export import EXPORT_POLICY, export_report
from portal.reports.gates import ReportRole, gated_report
from portal.reports.models import Report, ReportVersion
from portal.reports.services import reports as services
from portal.reports.services.share_links import share_report, stop_sharing
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.base import PageOf
from slipway.schemas.reports import (
    ExportFormat,
    ReportChange,
    ReportDetail,
    ReportIn,
    ReportOut,
    ReportRestore,
    ReportShared,
    ReportVersionDetail,
    ReportVersionOut,
)

router = Router(tags=["Reports"])
_SEE = ReportRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_CHANGE = ReportRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_SHARE = ReportRole(Role.MAINTAINER, Scope.EXPERIMENTS_WRITE)
_FILE = {
    "responses": {
        200: {
            "description": "The file",
            "content": {
                kind: {"schema": {"type": "string", "format": "binary"}}
                for kind in ("text/html", "application/pdf")
            },
        }
    }
}
_REPORT = "/projects/{project}/reports/{report}"


Number = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ReportExportQuery(BaseModel):
    """The format of the file: `html` or `pdf`."""

    format: ExportFormat = "html"


def _out(report: Report) -> ReportOut:
    return ReportOut(
        id=report.pk,
        title=report.title,
        version=report.version,
        created_by=user_out(report.created_by),
        created_at=report.created_at,
        saved_by=user_out(report.saved_by),
        saved_at=report.saved_at,
        shared_at=report.shared_at,
    )


def _detail(report: Report) -> ReportDetail:
    version = services.version_of(report, report.version)
    return ReportDetail(**_out(report).model_dump(), blocks=version.blocks)


def _version_out(version: ReportVersion) -> ReportVersionOut:
    return ReportVersionOut(
        number=version.number,
        title=version.title,
        saved_by=user_out(version.saved_by),
        saved_at=version.created_at,
    )


@router.get(
    "/projects/{project}/reports",
    auth=gate(ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)),
    response=PageOf[ReportOut],
)
def list_reports(request: HttpRequest, project: str, query: SearchParameters) -> PageOf[ReportOut]:
    """List the reports of a project, newest first."""
    reports = Report.objects.of_project(gated_project(request)).matching(query.q)
    return page_of(paginate(reports, cursor=query.cursor, limit=query.limit), _out)


@router.post(
    "/projects/{project}/reports",
    auth=gate(ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)),
    response={201: ReportDetail},
)
def create_report(request: HttpRequest, project: str, payload: ReportIn) -> Status[ReportDetail]:
    """Create a report. Objects that its blocks name need not exist, and are read when it opens."""
    by = require_principal(request).user
    report = services.create_report(project=gated_project(request), by=by, spec=payload)
    return Status(201, _detail(report))


@router.get(_REPORT, auth=gate(_SEE), response=ReportDetail)
def get_report(request: HttpRequest, project: str, report: str) -> ReportDetail:
    """Get a report with its blocks."""
    return _detail(gated_report(request))


@router.put(_REPORT, auth=gate(_CHANGE), response=ReportDetail)
def update_report(
    request: HttpRequest, project: str, report: str, payload: ReportChange
) -> ReportDetail:
    """Save a new version of a report, unless somebody has saved another one meanwhile."""
    saved = services.save_report(
        report=gated_report(request),
        by=require_principal(request).user,
        spec=payload,
        version=payload.version,
    )
    return _detail(saved)


@router.delete(_REPORT, auth=gate(_CHANGE), response={204: None})
def delete_report(request: HttpRequest, project: str, report: str) -> Status[None]:
    """Delete a report with all its versions. Objects in it stay."""
    services.delete_report(report=gated_report(request))
    return Status(204, None)


@router.get(f"{_REPORT}/versions", auth=gate(_SEE), response=PageOf[ReportVersionOut])
def list_report_versions(
    request: HttpRequest, project: str, report: str, query: PageParameters
) -> PageOf[ReportVersionOut]:
    """List the versions of a report, newest first."""
    versions = ReportVersion.objects.filter(report=gated_report(request)).defer("blocks")
    page = paginate(versions.select_related("saved_by"), cursor=query.cursor, limit=query.limit)
    return page_of(page, _version_out)


@router.get(f"{_REPORT}/versions/{{number}}", auth=gate(_SEE), response=ReportVersionDetail)
def get_report_version(
    request: HttpRequest, project: str, report: str, number: Number
) -> ReportVersionDetail:
    """Get a version of a report with its blocks."""
    version = services.version_of(gated_report(request), number)
    return ReportVersionDetail(**_version_out(version).model_dump(), blocks=version.blocks)


@router.post(f"{_REPORT}/versions/{{number}}/restore", auth=gate(_CHANGE), response=ReportDetail)
def restore_report_version(
    request: HttpRequest, project: str, report: str, number: Number, payload: ReportRestore
) -> ReportDetail:
    """Save the content of an earlier version as the newest one."""
    restored = services.restore_version(
        report=gated_report(request),
        by=require_principal(request).user,
        number=number,
        version=payload.version,
    )
    return _detail(restored)


@router.post(f"{_REPORT}/share", auth=gate(_SHARE), response={201: ReportShared})
def create_report_share(request: HttpRequest, project: str, report: str) -> Status[ReportShared]:
    """Create the share link, or replace it. Only this response contains the link.

    It opens the report, and nothing else of the project, for every signed-in person.
    """
    new = share_report(report=gated_report(request), by=require_principal(request).user)
    link = f"{settings.SLIPWAY_URL}{reverse('report_shared', args=[new.secret])}"
    return Status(201, ReportShared(link=link, shared_at=new.shared_at))


@router.delete(f"{_REPORT}/share", auth=gate(_SHARE), response={204: None})
def delete_report_share(request: HttpRequest, project: str, report: str) -> Status[None]:
    """Turn the share link off."""
    stop_sharing(report=gated_report(request))
    return Status(204, None)


@router.get(f"{_REPORT}/export", auth=gate(_SEE), response=None, openapi_extra=_FILE)
def export_report_file(
    request: HttpRequest, project: str, report: str, query: Query[ReportExportQuery]
) -> HttpResponse:
    """Export a report as one file, with its objects as they are now.

    Endpoints are left out for tokens without the scope `workloads:read`.
    """
    allowed = require_principal(request).allows(Scope.WORKLOADS_READ)
    file = export_report(gated_report(request), query.format, may_see_endpoints=allowed)
    response = HttpResponse(file.content, content_type=file.content_type)
    response.headers["Content-Disposition"] = (
        content_disposition_header(as_attachment=True, filename=file.name) or "attachment"
    )
    response.headers["Content-Security-Policy"] = EXPORT_POLICY
    response.headers["Cache-Control"] = "private, no-store"
    return response
