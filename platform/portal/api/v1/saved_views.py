"""Saved views of runs, shared by a project or private."""

from django.conf import settings
from django.http import HttpRequest
from ninja import Router, Status

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.api.routing import gate
from portal.api.v1.serializers import user_out
from portal.experiments.models import SavedView
from portal.experiments.services import saved_views
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.experiments import SavedViewIn, SavedViewOut

router = Router(tags=["Runs"])
_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_CHANGE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)


@router.get("/projects/{project}/views", auth=gate(_SEE), response=list[SavedViewOut])
def list_saved_views(request: HttpRequest, project: str) -> list[SavedViewOut]:
    """List the shared views of the project and your private ones by name, 200 of each at most."""
    project_row, person = gated_project(request), require_principal(request).user
    views = saved_views.views_of(project_row, person)
    return [_view_out(view, project_row.slug) for view in views]


@router.post("/projects/{project}/views", auth=gate(_CHANGE), response={201: SavedViewOut})
def save_view(request: HttpRequest, project: str, body: SavedViewIn) -> Status[SavedViewOut]:
    """Save a view of runs for the project, or for you alone. One of that name is replaced."""
    view = saved_views.save_view(
        project=gated_project(request),
        by=require_principal(request).user,
        name=body.name,
        query=body.query.removeprefix("?"),
        experiment_id=body.experiment,
        private=body.private,
    )
    return Status(201, _view_out(view, gated_project(request).slug))


@router.post("/projects/{project}/views/{view}/share", auth=gate(_CHANGE), response=SavedViewOut)
def share_saved_view(request: HttpRequest, project: str, view: str) -> SavedViewOut:
    """Share a private view of yours with the project. Private views of others do not exist."""
    project_row, person = gated_project(request), require_principal(request).user
    shared = saved_views.share_view(project=project_row, by=person, view_id=view)
    return _view_out(shared, project_row.slug)


@router.delete("/projects/{project}/views/{view}", auth=gate(_CHANGE), response={204: None})
def delete_saved_view(request: HttpRequest, project: str, view: str) -> Status[None]:
    """Delete a saved view. The runs stay."""
    person = require_principal(request).user
    saved_views.delete_view(project=gated_project(request), by=person, view_id=view)
    return Status(204, None)


def _view_out(view: SavedView, project_slug: str) -> SavedViewOut:
    return SavedViewOut(
        id=view.pk,
        name=view.name,
        query=view.query,
        experiment=view.experiment_id,
        private=view.is_private,
        saved_by=user_out(view.saved_by),
        created_at=view.created_at,
        link=f"{settings.SLIPWAY_URL}/p/{project_slug}/views/{view.pk}",
    )
