"""URLs: schedules."""

from django.urls import path

from portal.web.schedules.views import changes, creation, pages

_SCHEDULE = "p/<slug:project>/schedules/<slug:schedule>"
urlpatterns = [
    path("p/<slug:project>/schedules", pages.project_schedules, name="project_schedules"),
    path(
        "p/<slug:project>/schedules/new",
        creation.project_schedule_new,
        name="project_schedule_new",
    ),
    path(
        "p/<slug:project>/schedules/preview",
        creation.project_schedule_preview,
        name="project_schedule_preview",
    ),
    path(_SCHEDULE, pages.project_schedule, name="project_schedule"),
    path(f"{_SCHEDULE}/edit", creation.project_schedule_edit, name="project_schedule_edit"),
    path(f"{_SCHEDULE}/pause", changes.project_schedule_pause, name="project_schedule_pause"),
    path(f"{_SCHEDULE}/resume", changes.project_schedule_resume, name="project_schedule_resume"),
    path(f"{_SCHEDULE}/run", changes.project_schedule_run, name="project_schedule_run"),
    path(f"{_SCHEDULE}/hook", changes.project_schedule_hook, name="project_schedule_hook"),
    path(f"{_SCHEDULE}/delete", changes.project_schedule_delete, name="project_schedule_delete"),
]
