"""The policy of jobs: the project's policy, and the job the path names."""

from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.training.models import Job


class JobRole(ProjectObject[Job]):
    """Members of the project with at least `role`, for a job of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> Job | None:
        """Return the job by the id of its workload."""
        return Job.objects.of_project(project).filter(pk=path["job"]).first()


def gated_job(request: HttpRequest) -> Job:
    """Return the job the gate let this request reach."""
    return JobRole.stored(request)
