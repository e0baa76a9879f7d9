"""The policies of sweeps and of Optuna storages: the project's policy, and what the path names."""

from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.sweeps.models import OptunaStorage, OptunaStudy, Sweep


class SweepRole(ProjectObject[Sweep]):
    """Members of the project with at least `role`, for a sweep of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> Sweep | None:
        """Return the sweep by its id."""
        return Sweep.objects.of_project(project).filter(pk=path["sweep"]).first()


def gated_sweep(request: HttpRequest) -> Sweep:
    """Return the sweep the gate let this request reach."""
    return SweepRole.stored(request)


class OptunaStorageRole(ProjectObject[OptunaStorage]):
    """Members of the project with at least `role`, for an Optuna storage of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> OptunaStorage | None:
        """Return the storage by its name."""
        return OptunaStorage.objects.of_project(project).filter(name=path["storage"]).first()


def gated_storage(request: HttpRequest) -> OptunaStorage:
    """Return the Optuna storage the gate let this request reach."""
    return OptunaStorageRole.stored(request)


class OptunaStudyRole(ProjectObject[OptunaStudy]):
    """Members of the project with at least `role`, for an Optuna study of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> OptunaStudy | None:
        """Return the study by its id."""
        return OptunaStudy.objects.of_project(project).filter(pk=path["study"]).first()


def gated_study(request: HttpRequest) -> OptunaStudy:
    """Return the Optuna study the gate let this request reach."""
    return OptunaStudyRole.stored(request)
