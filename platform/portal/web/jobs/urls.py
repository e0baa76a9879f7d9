"""URLs: jobs."""

from django.urls import path

from portal.web.jobs.views import creation, dashboards, pages, shells

urlpatterns = [
    path("p/<slug:project>/jobs", pages.project_jobs, name="project_jobs"),
    path("p/<slug:project>/jobs/new", creation.project_job_new, name="project_job_new"),
    path("p/<slug:project>/jobs/quote", creation.project_job_quote, name="project_job_quote"),
    path("p/<slug:project>/jobs/code", creation.project_job_code, name="project_job_code"),
    path("p/<slug:project>/jobs/<slug:job>", pages.project_job, name="project_job"),
    path("p/<slug:project>/jobs/<slug:job>/diff", pages.project_job_diff, name="project_job_diff"),
    path(
        "p/<slug:project>/jobs/<slug:job>/shell", shells.project_job_shell, name="project_job_shell"
    ),
    path(
        "p/<slug:project>/jobs/<slug:job>/dashboard",
        dashboards.project_job_dashboard,
        name="project_job_dashboard",
    ),
    path(
        "p/<slug:project>/jobs/<slug:job>/cancel",
        pages.project_job_cancel,
        name="project_job_cancel",
    ),
    path(
        "p/<slug:project>/jobs/<slug:job>/resume",
        pages.project_job_resume,
        name="project_job_resume",
    ),
]
