"""Share links of reports: turned on and off, and opened."""

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.principal import require_principal
from portal.core.policy import guarded_by
from portal.reports.content.reader import ReportReader
from portal.reports.gates import ReportLink, ReportRole, gated_report, shared_report
from portal.reports.services.reports import version_of
from portal.reports.services.share_links import share_report, stop_sharing
from portal.web.base.form_submission import one_click
from portal.web.reports.views.pages import WHERE
from slipway.schemas.accounts import Role, Scope

_SHARE = ReportRole(Role.MAINTAINER, Scope.EXPERIMENTS_WRITE)


@guarded_by(_SHARE)
@require_POST
def project_report_share(request: HttpRequest, project: str, report: str) -> HttpResponse:
    """Create the share link. Only this response shows it."""
    report_row, by = gated_report(request), require_principal(request).user
    done = one_click(request, lambda: share_report(report=report_row, by=by))
    if done is None:
        return redirect("project_report", report_row.project.slug, report_row.pk)
    link = f"{settings.SLIPWAY_URL}{reverse('report_shared', args=[done.result.secret])}"
    context = {"report": report_row, "link": link}
    return render(request, "web/reports/link_created.html", context | WHERE)


@guarded_by(_SHARE)
@require_POST
def project_report_unshare(request: HttpRequest, project: str, report: str) -> HttpResponse:
    """Turn the share link off."""
    report_row = gated_report(request)
    if one_click(request, lambda: stop_sharing(report=report_row)):
        messages.success(request, "The share link no longer works.")
    return redirect("project_report", report_row.project.slug, report_row.pk)


@guarded_by(ReportLink())
@require_safe
def report_shared(request: HttpRequest, secret: str) -> HttpResponse:
    """Show a shared report. All that it shows is in this page: no address leads to the project."""
    report = shared_report(request)
    version = version_of(report, report.version)
    context = {
        "report": report,
        "blocks": ReportReader(report.project).read(version.blocks),
        "area": "",
    }
    response = render(request, "web/reports/shared.html", context)
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
