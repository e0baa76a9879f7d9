"""URLs: workloads of any kind."""

from django.urls import path

from portal.web.workloads.views import logs, pages

urlpatterns = [
    path(
        "p/<slug:project>/workloads/<slug:workload>",
        pages.project_workload,
        name="project_workload",
    ),
    path(
        "p/<slug:project>/workloads/<slug:workload>/stop",
        pages.project_workload_stop,
        name="project_workload_stop",
    ),
    path(
        "p/<slug:project>/workloads/<slug:workload>/log",
        logs.project_workload_log,
        name="project_workload_log",
    ),
    path(
        "p/<slug:project>/workloads/<slug:workload>/log/follow",
        logs.project_workload_follow,
        name="project_workload_follow",
    ),
    path(
        "p/<slug:project>/workloads/<slug:workload>/log/find",
        logs.project_workload_find,
        name="project_workload_find",
    ),
    path(
        "p/<slug:project>/workloads/<slug:workload>/log/download",
        logs.project_workload_download,
        name="project_workload_download",
    ),
    path(
        "p/<slug:project>/workloads/<slug:workload>/samples",
        logs.project_workload_samples,
        name="project_workload_samples",
    ),
]
