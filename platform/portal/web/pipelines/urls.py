"""URLs: runs of pipelines."""

from django.urls import path

from portal.web.pipelines.views import changes, pages

_RUN = "p/<slug:project>/pipelines/<slug:pipeline_run>"
urlpatterns = [
    path("p/<slug:project>/pipelines", pages.project_pipelines, name="project_pipelines"),
    path(_RUN, pages.project_pipeline_run, name="project_pipeline_run"),
    path(f"{_RUN}/cancel", changes.project_pipeline_cancel, name="project_pipeline_cancel"),
    path(f"{_RUN}/resume", changes.project_pipeline_resume, name="project_pipeline_resume"),
    path(f"{_RUN}/repeat", changes.project_pipeline_repeat, name="project_pipeline_repeat"),
    path(
        f"{_RUN}/steps/<slug:step>/decision",
        changes.project_pipeline_decide,
        name="project_pipeline_decide",
    ),
]
