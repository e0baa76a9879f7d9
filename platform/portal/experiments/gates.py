"""The policy of runs: the project's policy, and the run the path names."""

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from portal.accounts.gates import ProjectObject
from portal.accounts.models import Project
from portal.accounts.principal import authenticate_as
from portal.core.errors import NotFound
from portal.experiments.factories import tracker
from portal.experiments.ports import RunDetail
from portal.storage.signing import redeem
from slipway.schemas.accounts import Role, Scope


class TrackedRunRole(ProjectObject[RunDetail]):
    """Members of the project with at least `role`, for a run of that project."""

    def find(self, project: Project, path: dict[str, Any]) -> RunDetail | None:
        """Return the run by its id."""
        return tracker().run(project.pk, path["run"])


@dataclass(frozen=True)
class ArtifactLink:
    """Holders of a signed link to one artifact, while its maker may see the run."""

    def check(self, request: HttpRequest, path: dict[str, Any]) -> None:
        """Raise NotFound for a link that is no good. Set the run on the request."""
        requested = link_target(path["project"], path["run"], request.GET.get("path", ""))
        redeemed = redeem(request.GET.get("link", ""), method="GET", file_id=requested)
        if redeemed is None:
            raise NotFound
        authenticate_as(request, redeemed[1])
        TrackedRunRole(Role.VIEWER, Scope.EXPERIMENTS_READ).check(request, path)

    def describe(self) -> str:
        return "a signed link, and project viewer"


def link_target(project: str, run_id: str, artifact: str) -> str:
    """Return what a signed link to an artifact is bound to."""
    return f"artifact\n{project}\n{run_id}\n{artifact}"


def gated_run(request: HttpRequest) -> RunDetail:
    """Return the run the gate let this request reach."""
    return TrackedRunRole.stored(request)
