"""The policy of jobs: the project's policy, and the job the path names."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectRole, gated_project
from portal.core.errors import NotFound
from portal.training.models import Job
from slipway.schemas.accounts import Role, Scope


@dataclass(frozen=True)
class JobRole:
    """Members of the project in the path, with at least `role`, for a job of that project."""

    role: Role
    scope: Scope
    parameter: str = "job"

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the job on the request."""
        ProjectRole(self.role, self.scope).check(request, path)
        jobs = Job.objects.of_project(gated_project(request))
        job = jobs.filter(pk=path[self.parameter]).first()
        if job is None:
            raise NotFound
        request.gated_job = job  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"project {self.role.value}"


def gated_job(request: HttpRequest) -> Job:
    """Return the job the gate let this request reach."""
    job: Job = request.gated_job  # type: ignore[attr-defined]
    return job
