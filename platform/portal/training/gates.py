"""The policy of jobs: the project's policy, and the job the path names."""

from dataclasses import dataclass
from typing import Any, ClassVar

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.compute.tokens import bearer_of
from portal.core.errors import Forbidden, NotFound
from portal.training.models import Job
from portal.workloads.models import ShellSession
from portal.workloads.tokens import has_workload_shape
from slipway.schemas.accounts import Role, Scope


class JobRole(ProjectObject[Job]):
    """Members of the project with at least `role`, for a job of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> Job | None:
        """Return the job by the id of its workload."""
        return Job.objects.of_project(project).filter(pk=path["job"]).first()


def gated_job(request: HttpRequest) -> Job:
    """Return the job the gate let this request reach."""
    return JobRole.stored(request)


@dataclass(frozen=True)
class ShellOpener:
    """Contributors of the project, themselves: with a session or a token of their own.

    The token of a job speaks for the person, too. With it, code that somebody runs would get into
    other jobs.
    """

    scope: Scope = Scope.WORKLOADS_WRITE
    noun: ClassVar[str] = "shells"

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Store the job on the request."""
        JobRole(Role.CONTRIBUTOR, self.scope).check(request, path)
        if has_workload_shape(bearer_of(request.headers.get("Authorization", ""))):
            raise Forbidden(
                f"The token of a workload opens no {self.noun}.",
                code="not_a_person",
                next_step="Use an API token of your own, or the page of the job.",
            )

    def describe(self) -> str:
        return "project contributor, in person"


@dataclass(frozen=True)
class DashboardOpener(ShellOpener):
    """The same people, for dashboards: through one its cluster runs code for its submitter."""

    noun: ClassVar[str] = "dashboards"


@dataclass(frozen=True)
class ShellOwner:
    """The person who opened the shell, and still may."""

    scope: Scope = Scope.WORKLOADS_WRITE

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Store job and shell on the request."""
        ShellOpener(self.scope).check(request, path)
        shells = ShellSession.objects.filter(
            pk=path["shell"],
            lease__workload=gated_job(request).workload_id,
            user=require_principal(request).user,
        )
        shell = shells.select_related("lease", "user").first()
        if shell is None:
            raise NotFound
        request.gated_shell = shell  # type: ignore[attr-defined]

    def describe(self) -> str:
        return "person who opened the shell, as project contributor"


def gated_shell(request: HttpRequest) -> ShellSession:
    """Return the shell the gate let this request reach."""
    shell: ShellSession = request.gated_shell  # type: ignore[attr-defined]
    return shell
