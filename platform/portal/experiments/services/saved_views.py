"""Saved views of runs: a name for the address of a list, shared by the project."""

from django.db import transaction
from django.http import QueryDict

from portal.accounts.audit import record
from portal.accounts.models import Project, User
from portal.core.errors import Conflict, NotFound
from portal.experiments.factories import tracker
from portal.experiments.models import SavedView

MOST_VIEWS = 200
_OF_ONE_VISIT = ("cursor", "view", "csrfmiddlewaretoken")


def views_of(project: Project) -> list[SavedView]:
    """Return the saved views of a project, by name."""
    views = SavedView.objects.filter(project=project).select_related("saved_by")
    return list(views.order_by("name")[:MOST_VIEWS])


def save_view(
    *, project: Project, by: User, name: str, query: str, experiment_id: int | None
) -> SavedView:
    """Save a view, or replace the one of that name.

    Raises NotFound for an experiment that is not the project's, Conflict for one view too many.
    """
    if experiment_id is not None and tracker().project_of_experiment(experiment_id) != project.pk:
        raise NotFound
    values = {"query": kept_query(query), "experiment_id": experiment_id, "saved_by": by}
    with transaction.atomic():
        if SavedView.objects.filter(project=project).exclude(name=name).count() >= MOST_VIEWS:
            raise Conflict(
                f"A project has at most {MOST_VIEWS} saved views.",
                code="too_many_views",
                next_step="Delete one that nobody needs.",
            )
        view, is_new = SavedView.objects.update_or_create(
            project=project, name=name, defaults=values
        )
        record(
            "view.create" if is_new else "view.change",
            kind="view",
            target=view,
            label=name,
            project=project,
            after={"query": view.query},
        )
    return view


def delete_view(*, project: Project, view_id: str) -> SavedView:
    """Delete a saved view. Raises NotFound."""
    with transaction.atomic():
        view = view_of(project, view_id)
        record("view.delete", kind="view", target=view, label=view.name, project=project)
        SavedView.objects.filter(pk=view.pk).delete()
    return view


def view_of(project: Project, view_id: str) -> SavedView:
    """Return a saved view of the project. Raises NotFound."""
    view = SavedView.objects.filter(project=project, pk=view_id).first()
    if view is None:
        raise NotFound
    return view


def kept_query(query: str) -> str:
    """Return the part of an address that describes the view."""
    kept = QueryDict(query, mutable=True)
    for name in _OF_ONE_VISIT:
        kept.pop(name, None)
    return kept.urlencode()
