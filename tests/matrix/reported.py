"""A report of each tenant, with a version and a share link."""

from portal.accounts.models import Project, User
from portal.reports.models import Report, ReportVersion
from portal.reports.services.reports import create_report
from portal.reports.services.share_links import share_report
from slipway.schemas.reports import ReportIn

# Long enough to be told apart from every other number on a page.
VERSION = 612_352


def make_report(*, project: Project, by: User) -> dict[str, str]:
    """Create a report with one version, and turn its share link on."""
    spec = ReportIn.model_validate(
        {"title": f"report of {by.name}", "blocks": [{"kind": "text", "text": "Words."}]}
    )
    report = create_report(project=project, by=by, spec=spec)
    Report.objects.filter(pk=report.pk).update(version=VERSION)
    ReportVersion.objects.filter(report=report).update(number=VERSION)
    secret = share_report(report=report, by=by).secret
    return {"report": report.pk, "report version": str(VERSION), "share link": secret}
