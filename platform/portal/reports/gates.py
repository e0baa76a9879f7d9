"""Access policies of reports: roles in their project, and share links."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject, SignedIn
from portal.accounts.models import Project
from portal.core.errors import NotFound
from portal.reports.models import Report
from portal.reports.services.share_links import report_of_secret
from slipway.schemas.accounts import Scope


class ReportRole(ProjectObject[Report]):
    """Members of the project with at least `role`, for a report of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> Report | None:
        """Return the report by its id."""
        return Report.objects.of_project(project).filter(pk=path["report"]).first()


def gated_report(request: HttpRequest) -> Report:
    """Return the report the gate let this request reach."""
    return ReportRole.stored(request)


@dataclass(frozen=True)
class ReportLink:
    """Any person of the installation with a share link of a report, while the link is on.

    The project is not set on the request, so that nothing but the report opens with the link.
    """

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, Forbidden or NotFound. Set the report on the request."""
        SignedIn(Scope.EXPERIMENTS_READ).check(request, path)
        report = report_of_secret(path["secret"])
        if report is None:
            raise NotFound
        request.shared_report = report  # type: ignore[attr-defined]

    def describe(self) -> str:
        return "signed in, with a share link"


def shared_report(request: HttpRequest) -> Report:
    """Return the report whose share link this request has."""
    report: Report = request.shared_report  # type: ignore[attr-defined]
    return report
