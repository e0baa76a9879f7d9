"""Teams: list, create, overview, settings."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from portal.accounts.gates import SignedIn, TeamRole, gated_role, gated_team
from portal.accounts.models import Membership, Project, Team
from portal.accounts.models.tenancy import team_roles_of
from portal.accounts.principal import require_principal
from portal.accounts.services.teams import create_team, rename_team
from portal.core.policy import guarded_by
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.list_query import listing, search_parameter
from portal.web.base.urls_for import address_of
from portal.web.projects.forms import EditTeam, NewTeam
from slipway.schemas.accounts import Role, Scope

SORTS = {"name": "name", "address": "slug"}
FACES = 8


@guarded_by(SignedIn(Scope.PROJECTS_READ))
@require_safe
def teams(request: HttpRequest) -> HttpResponse:
    """List the teams of the person."""
    user = require_principal(request).user
    teams_queryset = Team.objects.visible_to(user).matching(search_parameter(request, "q"))
    shown = listing(request, teams_queryset, sorts=SORTS)
    roles = team_roles_of(user)
    rows = [(team, roles.get(team.pk)) for team in shown.page.items]
    context = {"listing": shown, "region": "teams", "rows": rows, "area": "teams"}
    return render(request, "web/teams/list.html", context)


@guarded_by(SignedIn(Scope.PROJECTS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def team_new(request: HttpRequest) -> HttpResponse:
    """Create a team that the person owns."""
    user = require_principal(request).user
    form = NewTeam(sent(request))
    done = submit_form(request, form, lambda data: create_team(by=user, **data))
    if done:
        messages.success(request, f"{done.result.name} is ready. Invite its members.")
        return redirect(address_of(done.result, "members"))
    context = {"form": form, "area": "teams"}
    return render(request, "web/teams/new.html", context, status=status_of(form))


@guarded_by(TeamRole(Role.VIEWER, Scope.PROJECTS_READ))
@require_safe
def team(request: HttpRequest, team: str) -> HttpResponse:
    """Show one team and its projects."""
    team_row = gated_team(request)
    projects = Project.objects.filter(team=team_row).live().matching(search_parameter(request, "q"))
    members = Membership.objects.in_group(team_row)
    context = {
        "team": team_row,
        "role": gated_role(request),
        "listing": listing(request, projects, sorts=SORTS),
        "members": members.select_related("user").order_by("pk")[:FACES],
        "member_count": members.count(),
        "may_add": gated_role(request).at_least(Role.MAINTAINER),
        "area": "teams",
        "section": "overview",
    }
    return render(request, "web/teams/overview.html", context)


@guarded_by(TeamRole(Role.MAINTAINER, Scope.PROJECTS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def team_settings(request: HttpRequest, team: str) -> HttpResponse:
    """Rename."""
    team_row = gated_team(request)
    form = EditTeam(sent(request), initial={"name": team_row.name})
    if submit_form(request, form, lambda data: rename_team(team=team_row, name=data["name"])):
        messages.success(request, "Saved.")
        return redirect(address_of(team_row, "settings"))
    context = {"team": team_row, "form": form, "area": "teams", "section": "settings"}
    return render(request, "web/teams/settings.html", context, status=status_of(form))
