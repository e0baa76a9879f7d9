"""The policy of runs: the project's policy, and the run the path names."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import act_as
from portal.core.errors import NotFound
from portal.experiments.factories import tracker
from portal.experiments.ports import RunDetail
from portal.storage.signing import redeem
from slipway.schemas.accounts import Role, Scope


@dataclass(frozen=True)
class TrackedRunRole:
    """Members of the project in the path, with at least `role`, for a run of that project."""

    role: Role
    scope: Scope
    parameter: str = "run"

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise Unauthenticated, NotFound or Forbidden. Set the run on the request."""
        ProjectRole(self.role, self.scope).check(request, path)
        run = tracker().run(gated_project(request).pk, path[self.parameter])
        if run is None:
            raise NotFound
        request.gated_run = run  # type: ignore[attr-defined]

    def describe(self) -> str:
        return f"project {self.role.value}"


@dataclass(frozen=True)
class ArtifactLink:
    """Whoever holds a signed link to one artifact, while its maker may see the run."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise NotFound for a link that is no good. Set the run on the request."""
        requested = link_target(path["project"], path["run"], request.GET.get("path", ""))
        redeemed = redeem(request.GET.get("link", ""), method="GET", file_id=requested)
        if redeemed is None:
            raise NotFound
        act_as(request, redeemed[1])
        TrackedRunRole(Role.VIEWER, Scope.EXPERIMENTS_READ).check(request, path)

    def describe(self) -> str:
        return "a signed link, and project viewer"


def link_target(project: str, run_id: str, artifact: str) -> str:
    """Return what a signed link to an artifact is bound to."""
    return f"artifact\n{project}\n{run_id}\n{artifact}"


def gated_run(request: HttpRequest) -> RunDetail:
    """Return the run the gate let this request reach."""
    run: RunDetail = request.gated_run  # type: ignore[attr-defined]
    return run
