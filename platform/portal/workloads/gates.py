"""The policy of workloads: the project's policy, and the workload the path names."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectRole, gated_project
from portal.core.errors import NotFound
from portal.workloads.models import Workload
from slipway.schemas.accounts import Role, Scope


@dataclass(frozen=True)
class WorkloadRole:
    """Members of the project in the path, with at least `role`, for a workload of that project."""

    role: Role
    scope: Scope
    parameter: str = "workload"

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the workload on the request."""
        ProjectRole(self.role, self.scope).check(request, path)
        workloads = Workload.objects.filter(
            project=gated_project(request), pk=path[self.parameter]
        ).select_related("project", "tier", "submitted_by", "team")
        workload = workloads.first()
        if workload is None:
            raise NotFound
        request.gated_workload = workload  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"project {self.role.value}"


def gated_workload(request: HttpRequest) -> Workload:
    """Return the workload the gate let this request reach."""
    workload: Workload = request.gated_workload  # type: ignore[attr-defined]
    return workload
