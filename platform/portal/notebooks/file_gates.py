"""The policies of notebook files: the project's policy, and what the path names in it."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.core.errors import Forbidden, NotFound
from portal.notebooks.models import NotebookFile, NotebookRun
from portal.workloads.models import Workload
from slipway.schemas.accounts import Role, Scope


@dataclass(frozen=True)
class NotebookRole:
    """Members of the project in the path, with at least `role`, for a notebook of that project.

    `deleted` finds one that was deleted, too.
    """

    role: Role
    scope: Scope
    parameter: str = "notebook"
    deleted: bool = False

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the notebook on the request."""
        ProjectRole(self.role, self.scope).check(request, path)
        files = NotebookFile.objects.of_project(gated_project(request))
        files = files if self.deleted else files.current()
        file = files.filter(pk=path[self.parameter]).first()
        if file is None:
            raise NotFound
        request.gated_notebook = file  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"project {self.role.value}"


@dataclass(frozen=True)
class NotebookRunRole:
    """Members of the project, with at least `role`, for a run of a notebook there."""

    role: Role
    scope: Scope

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the run on the request."""
        ProjectRole(self.role, self.scope).check(request, path)
        runs = NotebookRun.objects.of_project(gated_project(request))
        run = runs.filter(pk=path["job"]).first()
        if run is None:
            raise NotFound
        request.gated_run = run  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"project {self.role.value}"


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
        request.gated_workload = workload  # type: ignore[attr-defined]

    def describe(self) -> str:
        return "the job itself"


def gated_notebook(request: HttpRequest) -> NotebookFile:
    """Return the notebook the gate let this request reach."""
    file: NotebookFile = request.gated_notebook  # type: ignore[attr-defined]
    return file


def gated_run(request: HttpRequest) -> NotebookRun:
    """Return the run the gate let this request reach."""
    run: NotebookRun = request.gated_run  # type: ignore[attr-defined]
    return run


def gated_own_job(request: HttpRequest) -> Workload:
    """Return the workload that speaks for itself."""
    workload: Workload = request.gated_workload  # type: ignore[attr-defined]
    return workload
