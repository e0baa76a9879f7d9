"""Projects."""

from django.http import HttpRequest
from ninja import Query, Router, Status

from portal.accounts.gates import ProjectRole, SignedIn, gated_project, gated_role
from portal.accounts.models import Team
from portal.accounts.models.tenancy import roles_in
from portal.accounts.principal import require_principal
from portal.accounts.services import projects as project_services
from portal.accounts.services.projects import (
    archive_project,
    change_project,
)
from portal.accounts.services.readmes import readme_of, save_readme
from portal.api.routing import gate
from portal.api.v1.serializers import SearchQuery, page_of, project_out, readme_out
from portal.core.errors import Forbidden, InvalidInput
from portal.core.pagination import paginate
from slipway.schemas.accounts import (
    ProjectChange,
    ProjectIn,
    ProjectOut,
    ReadmeIn,
    ReadmeOut,
    Role,
    Scope,
)
from slipway.schemas.base import PageOf

router = Router(tags=["Projects"])


class ProjectsQuery(SearchQuery):
    """`archived` lists your archived projects instead of the active ones."""

    archived: bool = False


@router.get(
    "/projects",
    auth=gate(SignedIn(Scope.PROJECTS_READ, confined=True)),
    response=PageOf[ProjectOut],
)
def list_projects(request: HttpRequest, query: Query[ProjectsQuery]) -> PageOf[ProjectOut]:
    """List the projects you belong to, newest first."""
    principal = require_principal(request)
    projects = principal.projects().select_related("team").matching(query.q)
    projects = projects.archived_of(principal.user) if query.archived else projects.live()
    page = paginate(projects, cursor=query.cursor, limit=query.limit)
    roles = roles_in(principal.user, page.items)
    return page_of(page, lambda project: project_out(project, roles.get(project.pk)))


@router.post("/projects", auth=gate(SignedIn(Scope.PROJECTS_WRITE)), response={201: ProjectOut})
def create_project(request: HttpRequest, payload: ProjectIn) -> Status[ProjectOut]:
    """Create a project that you own."""
    user = require_principal(request).user
    team = None
    if payload.team is not None:
        team = Team.objects.visible_to(user).filter(slug=payload.team).first()
        if team is None:
            raise InvalidInput(
                f"There is no team {payload.team} that you belong to.",
                code="no_such_team",
                field="team",
                next_step="List your teams, or leave the team out.",
            )
    project = project_services.create_project(
        by=user,
        name=payload.name,
        slug=payload.slug,
        description=payload.description,
        team=team,
    )
    return Status(201, project_out(project, Role.OWNER))


@router.get(
    "/projects/{project}",
    auth=gate(ProjectRole(Role.VIEWER, Scope.PROJECTS_READ, archived=True)),
    response=ProjectOut,
)
def get_project(request: HttpRequest, project: str) -> ProjectOut:
    """Get a project."""
    return project_out(gated_project(request), gated_role(request))


@router.patch(
    "/projects/{project}",
    auth=gate(ProjectRole(Role.MAINTAINER, Scope.PROJECTS_WRITE)),
    response=ProjectOut,
)
def update_project(request: HttpRequest, project: str, payload: ProjectChange) -> ProjectOut:
    """Change the name or description, and as an owner the network rule."""
    role = gated_role(request)
    if payload.network is not None and role != Role.OWNER:
        raise Forbidden(
            "Only owners can change the network rule of a project.",
            code="role_too_low",
            field="network",
            next_step="Ask an owner of the project.",
        )
    changed = change_project(
        project=gated_project(request),
        name=payload.name,
        description=payload.description,
        network=payload.network,
    )
    return project_out(changed, role)


@router.get(
    "/projects/{project}/readme",
    auth=gate(ProjectRole(Role.VIEWER, Scope.PROJECTS_READ, archived=True)),
    response=ReadmeOut,
)
def get_readme(request: HttpRequest, project: str) -> ReadmeOut:
    """Get the README of a project. It is empty, with version 0, if there is none."""
    return readme_out(readme_of(gated_project(request)))


@router.put(
    "/projects/{project}/readme",
    auth=gate(ProjectRole(Role.CONTRIBUTOR, Scope.PROJECTS_WRITE)),
    response=ReadmeOut,
)
def update_readme(request: HttpRequest, project: str, payload: ReadmeIn) -> ReadmeOut:
    """Save the README of a project, unless somebody has saved another version meanwhile."""
    readme = save_readme(
        project=gated_project(request),
        by=require_principal(request).user,
        text=payload.text,
        version=payload.version,
    )
    return readme_out(readme)


@router.delete(
    "/projects/{project}",
    auth=gate(ProjectRole(Role.OWNER, Scope.PROJECTS_WRITE, archived=True)),
    response={204: None},
)
def delete_project(request: HttpRequest, project: str) -> Status[None]:
    """Archive the project. Only its owners see it then, and can restore it."""
    archive_project(project=gated_project(request))
    return Status(204, None)


@router.post(
    "/projects/{project}/restore",
    auth=gate(ProjectRole(Role.OWNER, Scope.PROJECTS_WRITE, archived=True)),
    response=ProjectOut,
)
def restore_project(request: HttpRequest, project: str) -> ProjectOut:
    """Restore an archived project."""
    restored = gated_project(request)
    project_services.restore_project(project=restored)
    restored.archived_at = None
    return project_out(restored, gated_role(request))
