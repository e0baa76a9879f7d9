"""URLs: reports of a project, and reports opened by a share link."""

from django.urls import path

from portal.web.reports.views import changes, pages, picker, share_links

_REPORT = "p/<slug:project>/reports/<slug:report>"
urlpatterns = [
    path("p/<slug:project>/reports", pages.project_reports, name="project_reports"),
    path("p/<slug:project>/reports/new", changes.project_report_new, name="project_report_new"),
    path("p/<slug:project>/reports/pick", picker.project_report_pick, name="project_report_pick"),
    path(_REPORT, pages.project_report, name="project_report"),
    path(f"{_REPORT}/edit", changes.project_report_edit, name="project_report_edit"),
    path(f"{_REPORT}/versions", pages.project_report_versions, name="project_report_versions"),
    path(f"{_REPORT}/restore", changes.project_report_restore, name="project_report_restore"),
    path(f"{_REPORT}/delete", changes.project_report_delete, name="project_report_delete"),
    path(f"{_REPORT}/export", pages.project_report_export, name="project_report_export"),
    path(f"{_REPORT}/share", share_links.project_report_share, name="project_report_share"),
    path(f"{_REPORT}/unshare", share_links.project_report_unshare, name="project_report_unshare"),
    path("shared/reports/<slug:secret>", share_links.report_shared, name="report_shared"),
]
