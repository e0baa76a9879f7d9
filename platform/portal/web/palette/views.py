"""The command palette: projects, pages and people one may see, by a few letters."""

from dataclasses import dataclass
from itertools import chain

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.accounts.gates import SignedIn
from portal.accounts.models import Membership, Project, Team, User
from portal.accounts.models.tenancy import role_in
from portal.accounts.principal import Principal, require_principal
from portal.core.policy import guarded_by
from portal.web.base.list_query import search_parameter
from portal.web.base.navigation import IN_PROJECT, IN_SETTINGS, RAIL
from portal.web.base.urls_for import address_of, url_of_hit
from portal.workloads.ports import registered_kinds
from slipway.schemas.accounts import Role, Scope

EACH = 6


@dataclass(frozen=True)
class PaletteItem:
    """One line of the palette."""

    label: str
    kind: str
    icon: str
    url: str


@guarded_by(SignedIn(Scope.PROJECTS_READ))
@require_safe
def palette(request: HttpRequest) -> HttpResponse:
    """Return the lines that match `q`, those of the project in `project` first."""
    principal, text = require_principal(request), search_parameter(request, "q")
    slug = search_parameter(request, "project")
    here = principal.projects().live().filter(slug=slug).select_related("team").first()
    pages_of_project = _pages_of(principal, here, text) if here else []
    groups = {
        **_workloads(principal, here, text),
        "projects": _projects(principal, text),
        "pages": _pages(principal, text),
        "teams": _teams(principal.user, text),
        "people": _user_items(principal.user, text) if text else [],
    }
    searched = {noun: lines for noun, lines in groups.items() if noun != "pages"}
    shown = [lines[:EACH] if noun in searched else lines for noun, lines in groups.items()]
    context = {
        "results": [*pages_of_project, *chain.from_iterable(shown)],
        "more": [noun for noun, lines in searched.items() if text and len(lines) > EACH],
        "each": EACH,
        "query": text,
    }
    return render(request, "web/parts/search_results.html", context)


def _matches(label: str, text: str) -> bool:
    return all(part in label.lower() for part in text.lower().split())


def _pages_of(principal: Principal, project: Project, text: str) -> list[PaletteItem]:
    role = role_in(principal.user, project)
    if role is None:
        return []
    pages = [
        PaletteItem(f"{project.name}: {entry.label}", "this project", entry.icon, address)
        for entry in IN_PROJECT
        if role.at_least(entry.role)
        for address in [reverse(entry.route, args=[project.slug])]
        if _matches(f"{project.name} {entry.label}", text)
    ]
    if role.at_least(Role.CONTRIBUTOR) and _matches("New job", text):
        address = reverse("project_job_new", args=[project.slug])
        pages.append(PaletteItem("New job", "action", "plus", address))
    if role.at_least(Role.CONTRIBUTOR) and _matches("New endpoint", text):
        address = reverse("project_endpoint_new", args=[project.slug])
        pages.append(PaletteItem("New endpoint", "action", "plus", address))
    return pages


def _workloads(
    principal: Principal, here: Project | None, text: str
) -> dict[str, list[PaletteItem]]:
    """Return jobs, notebooks, endpoints … by name, or the newest of the project without a text."""
    if not text and here is None:
        return {}
    within = None if text else here
    return {
        shown.search_noun: [
            PaletteItem(hit.label, f"{hit.noun} of {hit.project.name}", shown.icon, url_of_hit(hit))
            for hit in kind.search(principal=principal, project=within, text=text, limit=EACH + 1)
        ]
        for kind in registered_kinds().values()
        if (shown := kind.presentation).search_noun
    }


def _projects(principal: Principal, text: str) -> list[PaletteItem]:
    projects = principal.projects().live().matching(text).order_by("-pk")[: EACH + 1]
    return [
        PaletteItem(project.name, "project", "folder", address_of(project)) for project in projects
    ]


def _teams(user: User, text: str) -> list[PaletteItem]:
    teams = Team.objects.visible_to(user).matching(text).order_by("-pk")[: EACH + 1]
    return [PaletteItem(team.name, "team", "users-group", address_of(team)) for team in teams]


def _pages(principal: Principal, text: str) -> list[PaletteItem]:
    pages = [PaletteItem(e.label, "page", e.icon, reverse(e.route)) for e in RAIL]
    pages += [
        PaletteItem(f"Settings: {entry.label}", "page", entry.icon, reverse(entry.route))
        for entry in IN_SETTINGS
        if principal.user.is_administrator or not entry.administrators
    ]
    pages += [
        PaletteItem("New project", "action", "plus", reverse("project_new")),
        PaletteItem("New team", "action", "plus", reverse("team_new")),
        PaletteItem("New API token", "action", "key", reverse("token_new")),
        PaletteItem("API reference", "page", "book", reverse("api:openapi-view")),
    ]
    return [page for page in pages if _matches(page.label, text)]


def _user_items(user: User, text: str) -> list[PaletteItem]:
    """People who share a project or team with the person, each with a place where they are."""
    projects = Project.objects.visible_to(user).live()
    shared = Membership.objects.filter(project__in=projects) | Membership.objects.filter(
        team__in=Team.objects.visible_to(user)
    )
    memberships = shared.matching(text).select_related("user", "project", "team").order_by("-pk")
    seen: dict[str, PaletteItem] = {}
    for member in memberships.iterator():
        address = f"{address_of(member.group, 'members')}?q={member.user.email}"
        label = f"{member.user.display_name} · {member.user.email}"
        seen.setdefault(member.user_id, PaletteItem(label, member.group.name, "user", address))
        if len(seen) > EACH:
            break
    return list(seen.values())
