"""The policy of sweeps: the project's policy, and the sweep the path names."""

from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.sweeps.models import Sweep


class SweepRole(ProjectObject[Sweep]):
    """Members of the project with at least `role`, for a sweep of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> Sweep | None:
        """Return the sweep by its id."""
        return Sweep.objects.of_project(project).filter(pk=path["sweep"]).first()


def gated_sweep(request: HttpRequest) -> Sweep:
    """Return the sweep the gate let this request reach."""
    return SweepRole.stored(request)
