"""URLs: experiments and runs."""

from django.urls import path, re_path

from portal.web.experiments.views import (
    changes,
    compared_code,
    experiments,
    files,
    importance,
    links,
    results,
    runs,
)

urlpatterns = [
    path(
        "p/<slug:project>/experiments",
        experiments.project_experiments,
        name="project_experiments",
    ),
    path(
        "p/<slug:project>/experiments/<int:experiment>",
        experiments.project_experiment,
        name="project_experiment",
    ),
    path(
        "p/<slug:project>/experiments/<int:experiment>/delete",
        experiments.project_experiment_delete,
        name="project_experiment_delete",
    ),
    path(
        "p/<slug:project>/experiments/<int:experiment>/restore",
        experiments.project_experiment_restore,
        name="project_experiment_restore",
    ),
    path(
        "p/<slug:project>/trash/empty", experiments.project_trash_empty, name="project_trash_empty"
    ),
    path("p/<slug:project>/compare", runs.project_compare, name="project_compare"),
    path(
        "p/<slug:project>/compare/artifacts",
        results.project_compare_artifacts,
        name="project_compare_artifacts",
    ),
    path(
        "p/<slug:project>/compare/code",
        compared_code.project_compare_code,
        name="project_compare_code",
    ),
    path(
        "p/<slug:project>/compare/importance",
        importance.project_importance,
        name="project_importance",
    ),
    path("p/<slug:project>/runs", experiments.project_runs, name="project_runs"),
    path("p/<slug:project>/runs/columns", experiments.project_columns, name="project_columns"),
    path(
        "p/<slug:project>/runs/delete",
        experiments.project_runs_delete,
        name="project_runs_delete",
    ),
    path(
        "p/<slug:project>/runs/restore",
        experiments.project_runs_restore,
        name="project_runs_restore",
    ),
    path("p/<slug:project>/runs/tag", changes.project_runs_tag, name="project_runs_tag"),
    path("p/<slug:project>/runs/move", changes.project_runs_move, name="project_runs_move"),
    path("p/<slug:project>/views", changes.project_view_save, name="project_view_save"),
    path("p/<slug:project>/views/<slug:view>", changes.project_view, name="project_view"),
    path(
        "p/<slug:project>/views/<slug:view>/share",
        changes.project_view_share,
        name="project_view_share",
    ),
    path(
        "p/<slug:project>/views/<slug:view>/delete",
        changes.project_view_delete,
        name="project_view_delete",
    ),
    path(
        "p/<slug:project>/runs/<slug:run>/edit", changes.project_run_edit, name="project_run_edit"
    ),
    path("p/<slug:project>/runs/<slug:run>", runs.project_run, name="project_run"),
    path(
        "p/<slug:project>/runs/<slug:run>/file",
        files.project_run_file,
        name="project_run_file",
    ),
    path(
        "p/<slug:project>/runs/<slug:run>/download",
        files.project_run_download,
        name="project_run_download",
    ),
    path(
        "p/<slug:project>/runs/<slug:run>/results",
        results.project_run_results,
        name="project_run_results",
    ),
    path(
        "p/<slug:project>/runs/<slug:run>/media",
        results.project_run_media,
        name="project_run_media",
    ),
    path(
        "p/<slug:project>/runs/<slug:run>/events",
        results.project_run_events,
        name="project_run_events",
    ),
    re_path(r"^mlflow/?$", links.mlflow_page, name="mlflow_page"),
    path("mlflow/<slug:project>/", links.mlflow_page, name="mlflow_project_page"),
    path("open/runs/<slug:run>", links.open_run, name="open_run"),
    path("open/experiments/<int:experiment>", links.open_experiment, name="open_experiment"),
]
