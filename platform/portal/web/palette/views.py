"""The command palette: objects, pages, people and actions one may see, by a few letters."""

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
from portal.web.docs.catalog import files_by_slug
from portal.web.docs.markdown_pages import title_of
from portal.web.palette.objects import MOST_PROJECTS, PaletteItem, search_objects
from portal.workloads.ports import registered_kinds
from slipway.schemas.accounts import Role, Scope

EACH = 6


@dataclass(frozen=True)
class Action:
    """Something to start in a project, and words that find it besides its label."""

    label: str
    route: str
    words: str
    role: Role = Role.CONTRIBUTOR


ACTIONS = (
    Action("Launch a notebook", "project_notebook_new", "new notebook server jupyter lab start"),
    Action("New job", "project_job_new", "train run a script submit start"),
    Action("Deploy a model", "project_endpoint_new", "new endpoint serve create"),
    Action("Upload a dataset", "project_dataset_new", "new dataset data add import create"),
    Action("Register a model", "project_model_register", "new model version"),
    Action("Write a report", "project_report_new", "new report share page text charts"),
    Action("Edit the README", "project_readme", "describe about text"),
    Action("Invite a member", "project_invite", "add people person", Role.MAINTAINER),
    Action("Add a secret", "project_secret_write", "new set password key", Role.MAINTAINER),
    Action("Change stages and gates", "project_rules", "set approval rules", Role.MAINTAINER),
)


@guarded_by(SignedIn(Scope.PROJECTS_READ))
@require_safe
def palette(request: HttpRequest) -> HttpResponse:
    """Return the lines that match `q`, those of the project in `project` first."""
    principal, text = require_principal(request), search_parameter(request, "q")
    slug = search_parameter(request, "project")
    live = principal.projects().live().select_related("team")
    here = live.filter(slug=slug).first() if slug else None
    newest = live.order_by("-pk")[:MOST_PROJECTS] if text else []
    projects = {project.pk: project for project in newest}
    pages_of_project = _pages_of(principal, here, text) if here else []
    actions = _actions(principal, here, next(iter(projects.values()), None), text)
    groups = {
        **_workloads(principal, here, text),
        **(search_objects(principal, projects, here, text, limit=EACH + 1) if text else {}),
        "projects": _projects(principal, text),
        "pages": _pages(principal, text),
        "documentation pages": _docs_pages(text) if text else [],
        "teams": _teams(principal.user, text),
        "people": _user_items(principal.user, text) if text else [],
    }
    searched = {noun: lines for noun, lines in groups.items() if noun != "pages"}
    shown = [lines[:EACH] if noun in searched else lines for noun, lines in groups.items()]
    context = {
        "results": [*pages_of_project, *actions, *chain.from_iterable(shown)],
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
    return [
        PaletteItem(f"{project.name}: {entry.label}", "this project", entry.icon, address)
        for entry in IN_PROJECT
        if role.at_least(entry.role)
        for address in [reverse(entry.route, args=[project.slug])]
        if _matches(f"{project.name} {entry.label}", text)
    ]


def _actions(
    principal: Principal, here: Project | None, newest: Project | None, text: str
) -> list[PaletteItem]:
    """Return what the person can start, in the project at hand or else in the newest project."""
    project = here or newest
    role = role_in(principal.user, project) if project else None
    if project is None or role is None:
        return []
    return [
        PaletteItem(
            action.label if here else f"{action.label} in {project.name}",
            "action",
            "plus",
            reverse(action.route, args=[project.slug]),
        )
        for action in ACTIONS
        if role.at_least(action.role) and _matches(f"{action.label} {action.words}", text)
    ] + _budget_action(project, role, text, in_project=here is not None)


def _budget_action(
    project: Project, role: Role, text: str, *, in_project: bool
) -> list[PaletteItem]:
    """Return the action that sets a budget of a project, whose page is that of all budgets."""
    if not role.at_least(Role.MAINTAINER) or not _matches(
        "set a budget new limit money spend", text
    ):
        return []
    url = f"{reverse('budgets')}?group={project.slug}"
    label = "Set a budget" if in_project else f"Set a budget for {project.name}"
    return [PaletteItem(label, "action", "plus", url)]


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
        PaletteItem("Documentation", "page", "book-2", reverse("docs")),
        PaletteItem("API reference", "page", "book", reverse("api:openapi-view")),
    ]
    if principal.user.is_administrator:
        pages += [
            PaletteItem("New hardware tier", "action", "plus", reverse("tier_new")),
            PaletteItem("New pool", "action", "plus", reverse("pool_new")),
            PaletteItem("Join a machine as a node", "action", "plus", reverse("node_join")),
        ]
    return [page for page in pages if _matches(page.label, text)]


def _docs_pages(text: str) -> list[PaletteItem]:
    """Return pages of the documentation by title."""
    return [
        PaletteItem(title, "documentation", "book-2", reverse("docs_page", args=[slug]))
        for slug, file in files_by_slug().items()
        if file.file.is_file() and _matches(title := title_of(slug), text)
    ]


def _user_items(user: User, text: str) -> list[PaletteItem]:
    """People who share a project or team with the person, each with a place where they are."""
    projects = Project.objects.visible_to(user).live()
    shared = Membership.objects.filter(project__in=projects) | Membership.objects.filter(
        team__in=Team.objects.visible_to(user)
    )
    memberships = (
        shared.people().matching(text).select_related("user", "project", "team").order_by("-pk")
    )
    seen: dict[str, PaletteItem] = {}
    for member in memberships.iterator():
        address = f"{address_of(member.group, 'members')}?q={member.user.email}"
        label = f"{member.user.display_name} · {member.user.email}"
        seen.setdefault(member.user_id, PaletteItem(label, member.group.name, "user", address))
        if len(seen) > EACH:
            break
    return list(seen.values())
