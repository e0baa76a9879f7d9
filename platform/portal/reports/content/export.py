"""Reports as one file: HTML with styles, charts and images inside, or PDF."""

from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from portal.core import clock
from portal.core.text import slug_from
from portal.reports.content.pdf import pdf_of
from portal.reports.content.reader import ReportReader
from portal.reports.models import Report
from portal.reports.services.reports import version_of
from slipway.schemas.reports import ExportFormat

_TYPES: dict[ExportFormat, str] = {"html": "text/html; charset=utf-8", "pdf": "application/pdf"}
# A browser may only show an exported page that it opens from here.
EXPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class ExportedReport:
    """A file: its name, media type and bytes."""

    name: str
    content_type: str
    content: bytes


def export_report(
    report: Report, file_format: ExportFormat, *, may_see_endpoints: bool = True
) -> ExportedReport:
    """Return the current version of a report, with its objects as they are now."""
    version = version_of(report, report.version)
    reader = ReportReader(report.project, may_see_endpoints=may_see_endpoints)
    blocks = reader.read(version.blocks)
    saved_at, exported_at = _time_text(report.saved_at), _time_text(clock.now())
    if file_format == "pdf":
        author = report.saved_by.display_name
        subtitle = (
            f"Version {report.version}, saved by {author} at {saved_at}. Exported at {exported_at}."
        )
        content = pdf_of(report.title, subtitle, blocks)
    else:
        context = {
            "report": report,
            "blocks": blocks,
            "saved_at": saved_at,
            "exported_at": exported_at,
            "style": _style(),
        }
        content = render_to_string("reports/export.html", context).encode()
    name = slug_from(report.title) or "report"
    return ExportedReport(f"{name}.{file_format}", _TYPES[file_format], content)


@cache
def _style() -> SafeString:
    return SafeString(Path(__file__).with_name("export.css").read_text("utf-8"))


def _time_text(timestamp: datetime) -> str:
    return f"{timestamp:%Y-%m-%d %H:%M} UTC"
