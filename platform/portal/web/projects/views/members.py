"""Members and invitations of projects and teams: the same pages for both."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, TeamRole, gated_role
from portal.accounts.models import ApiToken, Invitation, Membership, Project, ServiceAccount, User
from portal.accounts.models.tenancy import Group
from portal.accounts.principal import require_principal
from portal.accounts.services import invitations, members
from portal.accounts.services.invitations import NewInvitation
from portal.core.errors import Forbidden, NotFound
from portal.core.policy import guarded_by
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, status_of, submit_form
from portal.web.base.list_query import Select, listing, search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.base.urls_for import address_of, gated_group
from portal.web.projects.forms import Invite, MemberRoleForm
from slipway.schemas.accounts import Role, Scope

# Each row has its own forms, and fifty rows took most of the page's time budget.
ROWS = 25
SORTS = {"email": "user__email", "role": "role"}
OPEN_SHOWN = 50
_READ, _WRITE = Scope.PROJECTS_READ, Scope.MEMBERS_WRITE


@guarded_by(ProjectRole(Role.VIEWER, _READ))
@require_safe
def project_members(request: HttpRequest, project: str) -> HttpResponse:
    """Members of the project, directly or through its team."""
    return _page(request)


@guarded_by(TeamRole(Role.VIEWER, _READ))
@require_safe
def team_members(request: HttpRequest, team: str) -> HttpResponse:
    """Members of the team."""
    return _page(request)


@guarded_by(ProjectRole(Role.MAINTAINER, _WRITE))
@require_POST
def project_invite(request: HttpRequest, project: str) -> HttpResponse:
    """Invite somebody to the project. Only this response shows the link."""
    return _invite(request)


@guarded_by(TeamRole(Role.MAINTAINER, _WRITE))
@require_POST
def team_invite(request: HttpRequest, team: str) -> HttpResponse:
    """Invite somebody to the team. Only this response shows the link."""
    return _invite(request)


@guarded_by(ProjectRole(Role.MAINTAINER, _WRITE))
@require_POST
def project_uninvite(request: HttpRequest, project: str, invitation: str) -> HttpResponse:
    """Withdraw an open invitation."""
    return _uninvite(request, invitation)


@guarded_by(TeamRole(Role.MAINTAINER, _WRITE))
@require_POST
def team_uninvite(request: HttpRequest, team: str, invitation: str) -> HttpResponse:
    """Withdraw an open invitation."""
    return _uninvite(request, invitation)


@guarded_by(ProjectRole(Role.MAINTAINER, _WRITE))
@require_POST
def project_role(request: HttpRequest, project: str, user: str) -> HttpResponse:
    """Change a direct member's role."""
    return _change(request, user)


@guarded_by(TeamRole(Role.MAINTAINER, _WRITE))
@require_POST
def team_role(request: HttpRequest, team: str, user: str) -> HttpResponse:
    """Change a member's role."""
    return _change(request, user)


@guarded_by(ProjectRole(Role.VIEWER, _WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_remove(request: HttpRequest, project: str, user: str) -> HttpResponse:
    """Ask, then remove a direct member, or leave."""
    return _remove(request, user)


@guarded_by(TeamRole(Role.VIEWER, _WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def team_remove(request: HttpRequest, team: str, user: str) -> HttpResponse:
    """Ask, then remove a member, or leave."""
    return _remove(request, user)


def _page(
    request: HttpRequest, form: Invite | None = None, made: NewInvitation | None = None
) -> HttpResponse:
    group, role = gated_group(request), gated_role(request)
    is_project = isinstance(group, Project)
    memberships = (
        Membership.objects.reaching(group)
        if isinstance(group, Project)
        else Membership.objects.in_group(group)
    )
    requested = request.GET.get("role", "")
    if requested in set(Role):
        memberships = memberships.filter(role=requested)
    memberships = (
        memberships.people().select_related("user", "team").matching(search_parameter(request, "q"))
    )
    if isinstance(group, Project) and requested not in set(Role):
        # A person who is in the project and in its team has one row, which names both roles.
        direct = Membership.objects.filter(project=group).values("user")
        memberships = memberships.exclude(team__isnull=False, user__in=direct)
    roles = Select("role", "Role", [(each.value, each.value) for each in Role], default="Any role")
    shown = listing(request, memberships, sorts=SORTS, selects=(roles,), limit=ROWS)
    team_roles = _team_roles(group, [row.user_id for row in shown.page.items])
    context: dict[str, Any] = {
        "group": group,
        "is_project": is_project,
        "noun": "project" if is_project else "team",
        "listing": shown,
        "region": "members",
        "rows": [(row, team_roles.get(row.user_id)) for row in shown.page.items],
        "role": role,
        "roles": list(Role),
        "me": require_principal(request).user,
        "may_change": role.at_least(Role.MAINTAINER),
        "made": made,
        "area": "projects" if is_project else "teams",
        "section": "members",
    }
    if isinstance(group, Project):
        context["account_count"] = ServiceAccount.objects.of_project(group).count()
    if role.at_least(Role.MAINTAINER):
        waiting = Invitation.objects.of_group(group).open().select_related("invited_by")
        context["invitations"] = shortlist(waiting.order_by("-pk"), OPEN_SHOWN)
        context["form"] = form or Invite(by_role=role)
    status = status_of(form) if form is not None else 200
    return render(request, "web/members/list.html", context, status=status)


def _team_roles(group: Group, user_ids: list[str]) -> dict[str, str]:
    """Return the roles that the team of a project gives to these people, by their id."""
    if not isinstance(group, Project) or group.team_id is None:
        return {}
    members = Membership.objects.filter(team=group.team_id, user__in=user_ids)
    return dict(members.values_list("user_id", "role"))


def _invite(request: HttpRequest) -> HttpResponse:
    group, role = gated_group(request), gated_role(request)
    by = require_principal(request).user
    form = Invite(request.POST, by_role=role)
    done = submit_form(
        request, form, lambda data: invitations.invite(group=group, by=by, by_role=role, **data)
    )
    return _page(request, None, done.result) if done else _page(request, form)


def _uninvite(request: HttpRequest, invitation: str) -> HttpResponse:
    group = gated_group(request)
    invitations.revoke(group=group, invitation_id=invitation)
    messages.success(request, "Invitation withdrawn; its link no longer works.")
    return redirect(address_of(group, "members"))


def _change(request: HttpRequest, user: str) -> HttpResponse:
    group = gated_group(request)
    form = MemberRoleForm(request.POST)
    if form.is_valid():
        done = one_click(
            request,
            lambda: members.set_role(
                group=group,
                user_id=user,
                role=form.cleaned_data["role"],
                by=require_principal(request).user,
                by_role=gated_role(request),
            ),
        )
        if done:
            messages.success(request, f"{done.result.user} is now {done.result.role}.")
    return redirect(address_of(group, "members"))


def _remove(request: HttpRequest, user_id: str) -> HttpResponse:
    group, me = gated_group(request), require_principal(request).user
    memberships = Membership.objects.in_group(group).people().select_related("user")
    member = memberships.filter(user_id=user_id).first()
    if member is None:
        raise NotFound
    if user_id != me.pk and not gated_role(request).at_least(Role.MAINTAINER):
        raise Forbidden("Only maintainers and owners can remove others.", next_step="Ask an owner.")
    if request.method != "POST":
        return show_confirmation(request, _removal_confirmation(group, member.user, me))
    done = one_click(
        request,
        lambda: members.remove_member(
            group=group, user_id=user_id, by=me, by_role=gated_role(request)
        ),
    )
    if done is None:
        return redirect(address_of(group, "members"))
    messages.success(request, f"{member.user} is no longer in {group.name}.")
    return redirect("home") if user_id == me.pk else redirect(address_of(group, "members"))


def _removal_confirmation(group: Group, user: User, me: User) -> Confirmation:
    leaving = user.pk == me.pk
    effects = [
        "Access ends immediately; open pages are disconnected within seconds.",
        "Everything created in it is retained.",
    ]
    if isinstance(group, Project):
        tokens = ApiToken.objects.usable().filter(user=user, project=group).count()
        effects.insert(1, f"Their API tokens limited to it stop working: {tokens}.")
        if group.team is not None and Membership.objects.filter(user=user, team=group.team):
            effects[0] = f"They remain a member through the team {group.team.name}."
    return Confirmation(
        title=f"Leave {group.name}?" if leaving else f"Remove {user} from {group.name}?",
        effects=tuple(effects),
        button="Leave" if leaving else f"Remove {user}",
        back=address_of(group, "members"),
        area="projects" if isinstance(group, Project) else "teams",
        section="members",
    )
