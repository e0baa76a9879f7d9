"""The policy of schedules: the project's policy, and the schedule the path names."""

from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.pipelines.models import ProjectSchedule


class ScheduleRole(ProjectObject[ProjectSchedule]):
    """Members of the project with at least `role`, for a schedule of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> ProjectSchedule | None:
        """Return the schedule by its name."""
        return ProjectSchedule.objects.of_project(project).filter(name=path["schedule"]).first()


def gated_schedule(request: HttpRequest) -> ProjectSchedule:
    """Return the schedule the gate let this request reach."""
    return ScheduleRole.stored(request)
