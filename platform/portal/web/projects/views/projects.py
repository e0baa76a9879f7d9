"""Projects: list, create, overview, settings, archive, restore."""

from typing import Any

from django.contrib import messages
from django.db.models import Min, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, SignedIn, gated_project, gated_role
from portal.accounts.models import ApiToken, AuditEvent, Invitation, Membership, Project
from portal.accounts.models.tenancy import roles_in
from portal.accounts.principal import require_principal
from portal.accounts.services.projects import (
    archive_project,
    change_project,
    create_project,
    restore_project,
)
from portal.accounts.services.readmes import readme_of
from portal.core.errors import InvalidInput
from portal.core.policy import guarded_by
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import sent, status_of, submit_form
from portal.web.base.list_query import Select, listing, search_parameter
from portal.web.base.urls_for import address_of
from portal.web.home.activity import activity_of
from portal.web.jobs.presenters import jobs_of
from portal.web.projects.forms import ChooseNetwork, ConfirmSlug, EditProject, NewProject
from slipway.schemas.accounts import Role, Scope

RECENT = 8
SORTS = {"name": "name", "address": "slug"}


@guarded_by(SignedIn(Scope.PROJECTS_READ))
@require_safe
def projects(request: HttpRequest) -> HttpResponse:
    """List the projects of the person."""
    principal = require_principal(request)
    projects_queryset = (
        principal.projects().select_related("team").matching(search_parameter(request, "q"))
    )
    archived = request.GET.get("state") == "archived"
    projects_queryset = (
        projects_queryset.archived_of(principal.user) if archived else projects_queryset.live()
    )
    options = [("archived", "Archived, owned by you")]
    states = Select("state", "State", options, default="Active", narrows=True)
    shown = listing(request, projects_queryset, sorts=SORTS, selects=(states,))
    roles = roles_in(principal.user, shown.page.items)
    rows = [(project, roles.get(project.pk)) for project in shown.page.items]
    context = {"listing": shown, "region": "projects", "rows": rows, "area": "projects"}
    return render(request, "web/projects/list.html", context)


@guarded_by(SignedIn(Scope.PROJECTS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_new(request: HttpRequest) -> HttpResponse:
    """Create a project that the person owns."""
    user = require_principal(request).user
    form = NewProject(sent(request), by=user, initial={"team": request.GET.get("team", "")})
    done = submit_form(request, form, lambda data: create_project(by=user, **data))
    if done:
        messages.success(request, f"{done.result.name} is ready. Invite the people you work with.")
        return redirect(address_of(done.result))
    context = {"form": form, "area": "projects"}
    return render(request, "web/projects/new.html", context, status=status_of(form))


@guarded_by(ProjectRole(Role.VIEWER, Scope.PROJECTS_READ, archived=True))
@require_safe
def project(request: HttpRequest, project: str) -> HttpResponse:
    """Show one project."""
    return render(request, "web/projects/overview.html", overview_of(request))


def overview_of(request: HttpRequest) -> dict[str, Any]:
    """Collect what the overview shows."""
    project_row = gated_project(request)
    members = Membership.objects.reaching(project_row).people()
    user = require_principal(request).user
    recent = AuditEvent.objects.visible_to(user).filter(project_id=project_row.pk)
    return {
        "project": project_row,
        "readme": readme_of(project_row),
        "role": gated_role(request),
        "members": _first_members(members),
        "member_count": members.values("user").distinct().count(),
        "recent": recent.order_by("-pk")[:RECENT],
        **activity_of(user, jobs_of(project_row), Project.objects.filter(pk=project_row.pk)),
        "may_work": gated_role(request).at_least(Role.CONTRIBUTOR),
        "may_invite": gated_role(request).at_least(Role.MAINTAINER),
        "area": "projects",
        "section": "overview",
    }


def _first_members(members: QuerySet[Membership]) -> list[Membership]:
    """Return the people who came first, each once, with the higher of both ways in."""
    came = members.values("user").annotate(first=Min("pk")).order_by("first")
    order = list(came.values_list("user", flat=True)[:RECENT])
    best: dict[str, Membership] = {}
    for member in members.filter(user__in=order).select_related("user", "team"):
        held = best.setdefault(member.user_id, member)
        if Role(member.role).rank > Role(held.role).rank:
            best[member.user_id] = member
    return [best[user] for user in order]


@guarded_by(ProjectRole(Role.MAINTAINER, Scope.PROJECTS_WRITE, archived=True))
@require_http_methods(["GET", "HEAD", "POST"])
def project_settings(request: HttpRequest, project: str) -> HttpResponse:
    """Rename and describe the project. Owners can also archive or restore it."""
    project_row = gated_project(request)
    given = {"name": project_row.name, "description": project_row.description}
    form = EditProject(sent(request), initial=given)
    network = ChooseNetwork(initial={"network": project_row.network})
    if submit_form(request, form, lambda data: change_project(project=project_row, **data)):
        messages.success(request, "Saved.")
        return redirect("project_settings", project_row.slug)
    context = {
        "project": project_row,
        "form": form,
        "network_form": network,
        "is_owner": gated_role(request) == Role.OWNER,
        "area": "projects",
        "section": "settings",
    }
    return render(request, "web/projects/settings.html", context, status=status_of(form))


@guarded_by(ProjectRole(Role.OWNER, Scope.PROJECTS_WRITE, archived=True))
@require_POST
def project_network(request: HttpRequest, project: str) -> HttpResponse:
    """Choose what the project's tasks reach of the network."""
    project_row, form = gated_project(request), ChooseNetwork(request.POST)
    if not form.is_valid():
        raise InvalidInput(
            "There is no such network rule.",
            field="network",
            next_step="Choose one of the rules on the page.",
        )
    change_project(project=project_row, network=form.cleaned_data["network"])
    messages.success(request, "Saved. It applies to work that starts from now on.")
    return redirect("project_settings", project_row.slug)


@guarded_by(ProjectRole(Role.OWNER, Scope.PROJECTS_WRITE, archived=True))
@require_http_methods(["GET", "HEAD", "POST"])
def project_archive(request: HttpRequest, project: str) -> HttpResponse:
    """Ask, then archive."""
    project_row = gated_project(request)
    form = ConfirmSlug(sent(request), slug=project_row.slug)
    if submit_form(request, form, lambda _: archive_project(project=project_row)):
        messages.success(request, f"{project_row.name} archived. You can restore it at any time.")
        return redirect(address_of(project_row))
    return show_confirmation(request, _archive_confirmation(project_row), form)


def _archive_confirmation(project: Project) -> Confirmation:
    reaching = Membership.objects.reaching(project).people()
    owners = reaching.filter(role=Role.OWNER).values("user")
    people = reaching.exclude(user__in=owners).values("user").distinct().count()
    tokens = ApiToken.objects.usable().filter(project=project).count()
    invitations = Invitation.objects.of_group(project).open().count()
    effects = [
        f"{_count(people, 'person loses', 'people lose')} access; only owners can still see it."
        if people
        else "Only owners can still see it.",
        "Nothing is deleted; an owner can restore it.",
    ]
    if tokens:
        message = f"{_count(tokens, 'API token', 'API tokens')} limited to it stop working."
        effects.insert(1, message)
    if invitations:
        message = (
            f"{_count(invitations, 'open invitation', 'open invitations')} can no longer be used."
        )
        effects.insert(-1, message)
    return Confirmation(
        title=f"Archive {project.name}?",
        effects=tuple(effects),
        button="Archive the project",
        back=address_of(project, "settings"),
        area="projects",
        section="settings",
    )


def _count(number: int, item: str, many: str) -> str:
    return f"{number} {item if number == 1 else many}"


@guarded_by(ProjectRole(Role.OWNER, Scope.PROJECTS_WRITE, archived=True))
@require_POST
def project_restore(request: HttpRequest, project: str) -> HttpResponse:
    """Bring an archived project back."""
    project_row = gated_project(request)
    restore_project(project=project_row)
    messages.success(request, f"{project_row.name} restored, with all members.")
    return redirect(address_of(project_row))
