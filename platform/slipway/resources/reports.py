"""Reports: versioned pages of text with charts, tables and other objects of a project."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from slipway.connection import Connection, Download, address
from slipway.pages import Pages
from slipway.resources.requests import build
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


class ProjectReports:
    """The reports of a project. `report` is the id of one.

    GET, POST projects/{project}/reports · GET, PUT, DELETE …/{report} · GET …/versions,
    versions/{number}, export · POST …/versions/{number}/restore · POST, DELETE …/share
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def page(self, report: str, *, project: str) -> str:
        """Return the address of the page of a report, for a browser."""
        return f"{self._connection.url}{address('p', project, 'reports', report)}"

    def list(self, *, project: str, search: str | None = None) -> Pages[ReportOut]:
        """List reports whose title contains `search`, newest first."""
        segments = ("projects", project, "reports")
        return Pages(self._connection, segments, PageOf[ReportOut], {"q": search})

    def get(self, report: str, *, project: str) -> ReportDetail:
        """Return one report with its blocks."""
        return self._connection.fetch(ReportDetail, "GET", *_path(project, report))

    def create(
        self, title: str, blocks: Sequence[dict[str, Any]] = (), *, project: str
    ) -> ReportDetail:
        """Create a report. Each block has a `kind` and the fields of that kind.

        Kinds are text, chart, runs, run, model_version, endpoint and artifact.
        The API reference lists the fields of each.
        """
        body = build(ReportIn, title=title, blocks=[*blocks])
        segments = ("projects", project, "reports")
        return self._connection.fetch(ReportDetail, "POST", *segments, body=body)

    def update(
        self,
        report: str,
        title: str,
        blocks: Sequence[dict[str, Any]],
        *,
        version: int,
        project: str,
    ) -> ReportDetail:
        """Save the whole new content of a report, edited from `version`.

        Raises Conflict, and saves nothing, if somebody has saved another version meanwhile.
        """
        body = build(ReportChange, title=title, blocks=[*blocks], version=version)
        return self._connection.fetch(ReportDetail, "PUT", *_path(project, report), body=body)

    def versions(self, report: str, *, project: str) -> Pages[ReportVersionOut]:
        """List the versions of a report, newest first."""
        segments = (*_path(project, report), "versions")
        return Pages(self._connection, segments, PageOf[ReportVersionOut])

    def version(self, report: str, number: int, *, project: str) -> ReportVersionDetail:
        """Return one version of a report with its blocks."""
        segments = (*_path(project, report), "versions", str(number))
        return self._connection.fetch(ReportVersionDetail, "GET", *segments)

    def restore(self, report: str, number: int, *, version: int, project: str) -> ReportDetail:
        """Save the content of version `number` as the newest one, if that is still `version`."""
        body = build(ReportRestore, version=version)
        segments = (*_path(project, report), "versions", str(number), "restore")
        return self._connection.fetch(ReportDetail, "POST", *segments, body=body)

    def delete(self, report: str, *, project: str) -> None:
        """Delete a report with all its versions. Objects in it stay."""
        self._connection.send("DELETE", *_path(project, report))

    def share(self, report: str, *, project: str) -> ReportShared:
        """Create the share link, or replace it. The link is in this answer alone.

        It opens the report for everybody who is signed in to the installation.
        """
        return self._connection.fetch(ReportShared, "POST", *_path(project, report), "share")

    def unshare(self, report: str, *, project: str) -> None:
        """Turn the share link off."""
        self._connection.send("DELETE", *_path(project, report), "share")

    def export(
        self,
        report: str,
        *,
        project: str,
        format: ExportFormat = "html",  # noqa: A002
    ) -> AbstractContextManager[Download]:
        """Receive a report as one file: `with … as file: for chunk in file`."""
        segments = (*_path(project, report), "export")
        return self._connection.stream(*segments, query={"format": format})


def _path(project: str, report: str) -> tuple[str, str, str, str]:
    return ("projects", project, "reports", report)
