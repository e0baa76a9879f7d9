"""Teams."""

from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import SignedIn, TeamRole, gated_role, gated_team
from portal.accounts.models import Team
from portal.accounts.models.tenancy import team_roles_of
from portal.accounts.principal import require_principal
from portal.accounts.services import teams as team_services
from portal.accounts.services.teams import rename_team
from portal.api.routing import gate
from portal.api.v1.serializers import SearchParameters, page_of, team_out
from portal.core.pagination import paginate
from slipway.schemas.accounts import Role, Scope, TeamChange, TeamIn, TeamOut
from slipway.schemas.base import PageOf

router = Router(tags=["Teams"])


@router.get("/teams", auth=gate(SignedIn(Scope.PROJECTS_READ)), response=PageOf[TeamOut])
def list_teams(request: HttpRequest, query: SearchParameters) -> PageOf[TeamOut]:
    """List the teams you belong to, newest first."""
    user = require_principal(request).user
    teams = Team.objects.visible_to(user).matching(query.q)
    page = paginate(teams, cursor=query.cursor, limit=query.limit)
    roles = team_roles_of(user)
    return page_of(page, lambda team: team_out(team, roles.get(team.pk)))


@router.post("/teams", auth=gate(SignedIn(Scope.PROJECTS_WRITE)), response={201: TeamOut})
def create_team(request: HttpRequest, payload: TeamIn) -> Status[TeamOut]:
    """Create a team that you own."""
    team = team_services.create_team(
        by=require_principal(request).user, name=payload.name, slug=payload.slug
    )
    return Status(201, team_out(team, Role.OWNER))


@router.get(
    "/teams/{team}", auth=gate(TeamRole(Role.VIEWER, Scope.PROJECTS_READ)), response=TeamOut
)
def get_team(request: HttpRequest, team: str) -> TeamOut:
    """Get a team."""
    return team_out(gated_team(request), gated_role(request))


@router.patch(
    "/teams/{team}", auth=gate(TeamRole(Role.MAINTAINER, Scope.PROJECTS_WRITE)), response=TeamOut
)
def update_team(request: HttpRequest, team: str, payload: TeamChange) -> TeamOut:
    """Change the name of a team."""
    team_row = gated_team(request)
    if payload.name is not None:
        team_row = rename_team(team=team_row, name=payload.name)
    return team_out(team_row, gated_role(request))
