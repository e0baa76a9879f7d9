"""Reports of a project: the list, one report, its versions, its export."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.core.errors import InvalidInput
from portal.core.policy import guarded_by
from portal.reports.content.export import EXPORT_POLICY, export_report
from portal.reports.content.reader import ReportReader
from portal.reports.gates import ReportRole, gated_report
from portal.reports.models import Report, ReportVersion
from portal.reports.services.reports import version_of
from portal.web.base.list_query import listing, search_parameter
from slipway.schemas.accounts import Role, Scope

SEE = ReportRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
WHERE = {"area": "projects", "section": "reports"}
_MOST_DIGITS = 9


@guarded_by(ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ))
@require_safe
def project_reports(request: HttpRequest, project: str) -> HttpResponse:
    """List the reports of a project, newest first."""
    reports = Report.objects.of_project(gated_project(request))
    reports = reports.matching(search_parameter(request, "q"))
    shown = listing(request, reports, sorts={"title": "title"})
    context = {
        "listing": shown,
        "region": "reports",
        "rows": shown.page.items,
        "may_write": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/reports/list.html", context | WHERE)


@guarded_by(SEE)
@require_safe
def project_report(request: HttpRequest, project: str, report: str) -> HttpResponse:
    """Show a report with its objects as they are now, or one of its earlier versions."""
    report_row, role = gated_report(request), gated_role(request)
    version = version_of(report_row, _number(request, report_row.version))
    reader = ReportReader(gated_project(request), links=True)
    context = {
        "report": report_row,
        "version": version,
        "is_current": version.number == report_row.version,
        "blocks": reader.read(version.blocks),
        "may_write": role.at_least(Role.CONTRIBUTOR),
        "may_share": role.at_least(Role.MAINTAINER),
    }
    return render(request, "web/reports/report.html", context | WHERE)


@guarded_by(SEE)
@require_safe
def project_report_versions(request: HttpRequest, project: str, report: str) -> HttpResponse:
    """List the versions of a report, newest first."""
    report_row = gated_report(request)
    versions = ReportVersion.objects.filter(report=report_row).select_related("saved_by")
    shown = listing(request, versions.defer("blocks"))
    context = {
        "report": report_row,
        "listing": shown,
        "region": "versions",
        "rows": shown.page.items,
        "may_write": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/reports/versions.html", context | WHERE)


@guarded_by(SEE)
@require_safe
def project_report_export(request: HttpRequest, project: str, report: str) -> HttpResponse:
    """Hand out the report as one file of HTML or PDF."""
    return exported(request, gated_report(request))


def exported(request: HttpRequest, report: Report) -> HttpResponse:
    """Return the file that the query parameter `format` names, by default HTML."""
    file_format = request.GET.get("format", "html")
    if file_format not in ("html", "pdf"):
        raise InvalidInput(
            "A report is exported as html or pdf.",
            field="format",
            next_step="Choose one of the buttons on the page of the report.",
        )
    file = export_report(report, "pdf" if file_format == "pdf" else "html")
    response = HttpResponse(file.content, content_type=file.content_type)
    response.headers["Content-Disposition"] = (
        content_disposition_header(as_attachment=True, filename=file.name) or "attachment"
    )
    response.headers["Content-Security-Policy"] = EXPORT_POLICY
    response.headers["Cache-Control"] = "private, no-store"
    return response


def _number(request: HttpRequest, current: int) -> int:
    text = request.GET.get("version", "")
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return current
    return int(text)
