"""The policies of notebook files: the project's policy, and what the path names in it."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject, ProjectRole, gated_project
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core.errors import Forbidden, NotFound
from portal.notebooks.models import NotebookFile, NotebookRun
from portal.workloads.models import Workload
from slipway.schemas.accounts import Role, Scope


@dataclass(frozen=True)
class NotebookRole(ProjectObject[NotebookFile]):
    """Members of the project with at least `role`, for a notebook of that project.

    `deleted` finds a deleted notebook, too.
    """

    deleted: bool = False

    def find(self, project: Project, path: dict[str, Any]) -> NotebookFile | None:
        """Return the notebook by its id."""
        files = NotebookFile.objects.of_project(project)
        files = files if self.deleted else files.current()
        return files.filter(pk=path["notebook"]).first()


class NotebookRunRole(ProjectObject[NotebookRun]):
    """Members of the project with at least `role`, for a run of a notebook there."""

    def find(self, project: Project, path: dict[str, Any]) -> NotebookRun | None:
        """Return the run by the id of its job."""
        return NotebookRun.objects.of_project(project).filter(pk=path["job"]).first()


@dataclass(frozen=True)
class OwnJob:
    """A job itself, by the token it runs with: what it tells of its notebook nobody else may."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the workload on the request."""
        ProjectRole(Role.CONTRIBUTOR, Scope.FILES_WRITE).check(request, path)
        jobs = Workload.objects.filter(project=gated_project(request), kind="job")
        workload = jobs.select_related("project", "submitted_by").filter(pk=path["job"]).first()
        if workload is None:
            raise NotFound
        token = require_principal(request).token
        if token is None or token.pk != workload.pk:
            raise Forbidden(
                "Only the job itself can report how its notebook ran.",
                code="not_the_job",
                next_step="Run the notebook as a job; the job reports by itself.",
            )
        request.gated_own_job = workload  # type: ignore[attr-defined]

    def describe(self) -> str:
        return "the job itself"


def gated_notebook(request: HttpRequest) -> NotebookFile:
    """Return the notebook the gate let this request reach."""
    return NotebookRole.stored(request)


def gated_run(request: HttpRequest) -> NotebookRun:
    """Return the run the gate let this request reach."""
    return NotebookRunRole.stored(request)


def gated_own_job(request: HttpRequest) -> Workload:
    """Return the workload that speaks for itself."""
    workload: Workload = request.gated_own_job  # type: ignore[attr-defined]
    return workload
