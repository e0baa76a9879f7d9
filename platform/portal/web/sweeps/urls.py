"""URLs: sweeps."""

from django.urls import path

from portal.web.sweeps.views import changes, creation, pages, storages, studies

_SWEEP = "p/<slug:project>/sweeps/<slug:sweep>"
_STORAGES = "p/<slug:project>/optuna-storages"
urlpatterns = [
    path("p/<slug:project>/sweeps", pages.project_sweeps, name="project_sweeps"),
    path("p/<slug:project>/sweeps/new", creation.project_sweep_new, name="project_sweep_new"),
    path("p/<slug:project>/sweeps/quote", creation.project_sweep_quote, name="project_sweep_quote"),
    path(_SWEEP, pages.project_sweep, name="project_sweep"),
    path(f"{_SWEEP}/pause", changes.project_sweep_pause, name="project_sweep_pause"),
    path(f"{_SWEEP}/resume", changes.project_sweep_resume, name="project_sweep_resume"),
    path(f"{_SWEEP}/extend", changes.project_sweep_extend, name="project_sweep_extend"),
    path(f"{_SWEEP}/repeat", changes.project_sweep_repeat, name="project_sweep_repeat"),
    path(f"{_SWEEP}/stop", changes.project_sweep_stop, name="project_sweep_stop"),
    path(_STORAGES, storages.project_optuna_storages, name="project_optuna_storages"),
    path(
        f"{_STORAGES}/<slug:storage>/delete",
        storages.project_optuna_storage_delete,
        name="project_optuna_storage_delete",
    ),
    path(
        "p/<slug:project>/optuna-studies/<slug:study>",
        studies.project_optuna_study,
        name="project_optuna_study",
    ),
]
