"""Saved views of runs, shared by a project."""

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
    """List the saved views of the project by name, 200 at most."""
    slug = gated_project(request).slug
    return [_view_out(view, slug) for view in saved_views.views_of(gated_project(request))]


@router.post("/projects/{project}/views", auth=gate(_CHANGE), response={201: SavedViewOut})
def save_view(request: HttpRequest, project: str, body: SavedViewIn) -> Status[SavedViewOut]:
    """Save a view of runs for everybody in the project, or replace the one of that name."""
    view = saved_views.save_view(
        project=gated_project(request),
        by=require_principal(request).user,
        name=body.name,
        query=body.query.removeprefix("?"),
        experiment_id=body.experiment,
    )
    return Status(201, _view_out(view, gated_project(request).slug))


@router.delete("/projects/{project}/views/{view}", auth=gate(_CHANGE), response={204: None})
def delete_saved_view(request: HttpRequest, project: str, view: str) -> Status[None]:
    """Delete a saved view. The runs stay."""
    saved_views.delete_view(project=gated_project(request), view_id=view)
    return Status(204, None)


def _view_out(view: SavedView, project_slug: str) -> SavedViewOut:
    return SavedViewOut(
        id=view.pk,
        name=view.name,
        query=view.query,
        experiment=view.experiment_id,
        saved_by=user_out(view.saved_by),
        created_at=view.created_at,
        link=f"{settings.SLIPWAY_URL}/p/{project_slug}/views/{view.pk}",
    )
