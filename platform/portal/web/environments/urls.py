"""URLs: named environments of a project."""

from django.urls import path

from portal.web.environments.views import changes, pages

_ENVIRONMENT = "p/<slug:project>/environments/<slug:environment>"
urlpatterns = [
    path("p/<slug:project>/environments", pages.project_environments, name="project_environments"),
    path(
        "p/<slug:project>/new-environment",
        changes.project_environment_new,
        name="project_environment_new",
    ),
    path(
        "p/<slug:project>/default-environment",
        changes.project_environment_default,
        name="project_environment_default",
    ),
    path(_ENVIRONMENT, pages.project_environment, name="project_environment"),
    path(
        f"{_ENVIRONMENT}/version",
        changes.project_environment_version,
        name="project_environment_version",
    ),
    path(f"{_ENVIRONMENT}/edit", changes.project_environment_edit, name="project_environment_edit"),
    path(
        f"{_ENVIRONMENT}/build",
        changes.project_environment_build,
        name="project_environment_build",
    ),
    path(
        f"{_ENVIRONMENT}/archive",
        changes.project_environment_archive,
        name="project_environment_archive",
    ),
    path(
        f"{_ENVIRONMENT}/restore",
        changes.project_environment_restore,
        name="project_environment_restore",
    ),
]
