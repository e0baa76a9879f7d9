"""Quotas, set by administrators and visible to members."""

from django.http import HttpRequest
from ninja import Router

from portal.accounts.gates import Administrator, ProjectRole, TeamRole, gated_project, gated_team
from portal.accounts.models import Project, Team
from portal.accounts.models.tenancy import Group
from portal.api.routing import gate
from portal.api.v1.workload_serializers import quota_out
from portal.compute.models import Quota
from portal.compute.services.quotas import set_quota
from portal.core.errors import NotFound
from portal.workloads.models import Share
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.workloads import QuotaIn, QuotaOut

router = Router(tags=["Quotas"])


def _shown(group: Group) -> QuotaOut:
    owner = {"team": group} if isinstance(group, Team) else {"project": group}
    return quota_out(Quota.objects.filter(**owner).first(), Share.objects.filter(**owner).first())


def _set(group: Group | None, payload: QuotaIn) -> QuotaOut:
    if group is None:
        raise NotFound
    set_quota(
        group=group,
        cpu_millis=payload.cpu_millis,
        gpus=payload.gpus,
        running=payload.running,
        weight=payload.weight,
    )
    return _shown(group)


@router.get(
    "/projects/{project}/quota",
    auth=gate(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ)),
    response=QuotaOut,
)
def get_project_quota(request: HttpRequest, project: str) -> QuotaOut:
    """Get the quota of the project and its usage."""
    return _shown(gated_project(request))


@router.get(
    "/teams/{team}/quota",
    auth=gate(TeamRole(Role.VIEWER, Scope.WORKLOADS_READ)),
    response=QuotaOut,
)
def get_team_quota(request: HttpRequest, team: str) -> QuotaOut:
    """Get the quota of the team's projects and their usage."""
    return _shown(gated_team(request))


@router.put("/quotas/projects/{project}", auth=gate(Administrator()), response=QuotaOut)
def set_project_quota(request: HttpRequest, project: str, payload: QuotaIn) -> QuotaOut:
    """Replace the quota of a project. Running work continues."""
    return _set(Project.objects.filter(slug=project).first(), payload)


@router.put("/quotas/teams/{team}", auth=gate(Administrator()), response=QuotaOut)
def set_team_quota(request: HttpRequest, team: str, payload: QuotaIn) -> QuotaOut:
    """Replace the quota of a team. Running work continues."""
    return _set(Team.objects.filter(slug=team).first(), payload)
