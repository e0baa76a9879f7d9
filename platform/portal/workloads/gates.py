"""The policy of workloads: the project's policy, and the workload the path names."""

from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.workloads.models import Workload


class WorkloadRole(ProjectObject[Workload]):
    """Members of the project with at least `role`, for a workload of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> Workload | None:
        """Return the workload by its id."""
        workloads = Workload.objects.filter(project=project, pk=path["workload"])
        return workloads.select_related("project", "tier", "submitted_by", "team").first()


def gated_workload(request: HttpRequest) -> Workload:
    """Return the workload the gate let this request reach."""
    return WorkloadRole.stored(request)
