"""Home: what one has, what happened, what to do next."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from portal.accounts.gates import ProjectRole, SignedIn, gated_project
from portal.accounts.models import AuditEvent, Invitation, Project, User
from portal.accounts.models.tenancy import roles_in
from portal.accounts.notifications import Notifications, notifications_for
from portal.accounts.principal import Principal, require_principal
from portal.accounts.services.invitations import accept_without_link
from portal.core.errors import InvalidInput
from portal.core.policy import guarded_by
from portal.core.problems import current_problems
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.base.urls_for import address_of
from portal.web.home.activity import activity_of
from portal.web.home.first_steps import guidance_for, set_hidden
from portal.web.jobs.presenters import visible_jobs
from slipway.schemas.accounts import Role, Scope

PROJECTS_SHOWN = 6
INVITATIONS_SHOWN = 20
CHANGES_SHOWN = 8
JOBS_SHOWN = 8
ENDPOINTS_SHOWN = 8
CARD_NOTIFICATIONS = 5


@guarded_by(SignedIn())
@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Show what the person has and can start."""
    return render(request, "web/home.html", home_of(require_principal(request)))


@guarded_by(SignedIn())
@require_safe
def notifications(request: HttpRequest) -> HttpResponse:
    """Show what needs a person now, in all projects of the person."""
    shown = notifications_for(require_principal(request))
    context = {
        "notifications": shown,
        "waiting": shown.waiting,
        "others": [item for item in shown.items if not item.waits_for_you],
        "area": "home",
    }
    return render(request, "web/notifications.html", context)


@guarded_by(SignedIn())
@require_safe
def notifications_count(request: HttpRequest) -> HttpResponse:
    """Show the number of open notifications, for the bell on every page."""
    shown = notifications_for(require_principal(request))
    return render(request, "web/parts/notifications_count.html", {"count": shown.count})


@guarded_by(SignedIn())
@require_safe
def notifications_card(request: HttpRequest) -> HttpResponse:
    """Show the first notifications, for the card on Home."""
    return _card(request, notifications_for(require_principal(request)))


@guarded_by(ProjectRole(Role.VIEWER, Scope.PROJECTS_READ, archived=True))
@require_safe
def project_notifications_card(request: HttpRequest, project: str) -> HttpResponse:
    """Show the first notifications of a project, for the card on its overview."""
    project_row = gated_project(request)
    return _card(request, notifications_for(require_principal(request), project_row), project_row)


def _card(
    request: HttpRequest, shown: Notifications, project: Project | None = None
) -> HttpResponse:
    context = {
        "notifications": shown,
        "first": shown.items[:CARD_NOTIFICATIONS],
        "project": project,
    }
    return render(request, "web/parts/notifications_card.html", context)


def home_of(principal: Principal) -> dict[str, Any]:
    """Collect what Home shows."""
    user = principal.user
    projects = list(
        principal.projects().live().select_related("team").order_by("-pk")[: PROJECTS_SHOWN + 1]
    )
    roles = roles_in(user, projects)
    recent = AuditEvent.objects.visible_to(user).exclude(target_kind="user")
    # Files that the platform stores for itself belong to another change.
    recent = recent.exclude(verb="file.create", actor_id="")
    work_in = _first_writable_project(projects, roles)
    return {
        **activity_of(user, visible_jobs(principal), principal.projects().live()),
        "projects": [(project, roles.get(project.pk)) for project in projects[:PROJECTS_SHOWN]],
        "more_projects": len(projects) > PROJECTS_SHOWN,
        "recent": recent.order_by("-pk")[:CHANGES_SHOWN],
        "invitations": _invitations_of(user),
        "problems": current_problems(),
        "guidance": guidance_for(principal, work_in),
        "work_in": work_in,
        "area": "home",
    }


def _first_writable_project(projects: list[Project], roles: dict[str, Role]) -> Project | None:
    """The newest project in which the person may start something."""
    held = ((project, roles.get(project.pk)) for project in projects)
    return next(
        (project_row for project_row, role in held if role and role.at_least(Role.CONTRIBUTOR)),
        None,
    )


def _invitations_of(user: User) -> Shortlist[Invitation]:
    invitations = Invitation.objects.open().filter(email=user.email)
    rows = invitations.select_related("project", "team", "invited_by").order_by("-pk")
    return shortlist(rows, INVITATIONS_SHOWN)


@guarded_by(SignedIn(Scope.PROJECTS_READ))
@require_POST
def first_steps(request: HttpRequest) -> HttpResponse:
    """Hide the first steps from the person's Home, or show them again."""
    hidden = request.POST.get("hidden")
    if hidden not in ("yes", "no"):
        raise InvalidInput(
            "hidden has to be yes or no.",
            field="hidden",
            next_step="Use the buttons on Home.",
        )
    set_hidden(require_principal(request).user, hidden=hidden == "yes")
    return redirect("home")


@guarded_by(SignedIn(Scope.PROJECTS_WRITE))
@require_POST
def invitation_accept_own(request: HttpRequest, invitation: str) -> HttpResponse:
    """Accept an invitation made for one's own address, without its link."""
    user = require_principal(request).user
    accepted = accept_without_link(invitation_id=invitation, by=user)
    messages.success(request, f"Welcome to {accepted.group.name}.")
    return redirect(address_of(accepted.group))
