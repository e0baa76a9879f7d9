"""Saved views of runs: a name for the address of a list, shared by the project or private."""

from typing import Any

from django.db import transaction
from django.http import QueryDict

from portal.accounts.audit import record
from portal.accounts.models import Project, User
from portal.core.errors import Conflict, InvalidInput, NotFound
from portal.experiments.factories import tracker
from portal.experiments.models import SavedView

MOST_VIEWS = 200
# Servers and browsers refuse longer addresses.
MOST_QUERY_CHARACTERS = 8_000
_OF_ONE_VISIT = ("cursor", "view", "csrfmiddlewaretoken")
# The audit log of a project does not name what exists for one person alone.
_PRIVATE_LABEL = "(private)"


def views_of(project: Project, person: User) -> list[SavedView]:
    """Return the saved views of a project that a person sees, by name."""
    views = SavedView.objects.of(project, person).select_related("saved_by")
    return list(views.order_by("name", "is_private")[: 2 * MOST_VIEWS])


def save_view(
    *,
    project: Project,
    by: User,
    name: str,
    query: str,
    experiment_id: int | None,
    private: bool = False,
) -> SavedView:
    """Save a view, or replace the one of that name: the shared one, or the person's private one.

    Raises NotFound for an experiment that is not the project's, Conflict for one view too many, and
    InvalidInput for a query that becomes too long for an address.
    """
    if experiment_id is not None and tracker().project_of_experiment(experiment_id) != project.pk:
        raise NotFound
    kept = kept_query(query)
    if len(kept) > MOST_QUERY_CHARACTERS:
        raise InvalidInput(
            f"The query has {len(kept):,} characters as part of an address, where at most "
            f"{MOST_QUERY_CHARACTERS:,} are allowed.",
            field="query",
            next_step="Remove columns or charts from the view, or shorten its filter.",
        )
    values = {"query": kept, "experiment_id": experiment_id, "saved_by": by}
    key: dict[str, Any] = {"project": project, "is_private": private}
    if private:
        key["saved_by"] = by
    with transaction.atomic():
        if SavedView.objects.filter(**key).exclude(name=name).count() >= MOST_VIEWS:
            whose = "You have" if private else "A project has"
            raise Conflict(
                f"{whose} at most {MOST_VIEWS} {'private' if private else 'shared'} views.",
                code="too_many_views",
                next_step="Delete one that nobody needs.",
            )
        view, is_new = SavedView.objects.update_or_create(**key, name=name, defaults=values)
        record(
            "view.create" if is_new else "view.change",
            kind="view",
            target=view,
            label=_label(view),
            project=project,
            after={} if private else {"query": view.query},
        )
    return view


def share_view(*, project: Project, by: User, view_id: str) -> SavedView:
    """Share a private view with the project. One that is shared stays as it is.

    Raises NotFound for another person's, and Conflict if a shared view has its name.
    """
    with transaction.atomic():
        view = view_of(project, by, view_id)
        if not view.is_private:
            return view
        if SavedView.objects.filter(project=project, name=view.name, is_private=False).exists():
            raise Conflict(
                f"The project has a shared view with the name {view.name}.",
                code="view_name_taken",
                field="name",
                next_step="Open your view and save it under another name, shared.",
            )
        if SavedView.objects.filter(project=project, is_private=False).count() >= MOST_VIEWS:
            raise Conflict(
                f"A project has at most {MOST_VIEWS} shared views.",
                code="too_many_views",
                next_step="Delete one that nobody needs.",
            )
        if not SavedView.objects.filter(pk=view.pk, is_private=True).update(is_private=False):
            raise NotFound
        view.is_private = False
        record(
            "view.share",
            kind="view",
            target=view,
            label=view.name,
            project=project,
            after={"query": view.query},
        )
    return view


def delete_view(*, project: Project, by: User, view_id: str) -> SavedView:
    """Delete a saved view. Raises NotFound."""
    with transaction.atomic():
        view = view_of(project, by, view_id)
        record("view.delete", kind="view", target=view, label=_label(view), project=project)
        SavedView.objects.filter(pk=view.pk).delete()
    return view


def view_of(project: Project, person: User, view_id: str) -> SavedView:
    """Return a saved view of the project. Raises NotFound, also for a private one of others."""
    view = SavedView.objects.of(project, person).filter(pk=view_id).first()
    if view is None:
        raise NotFound
    return view


def _label(view: SavedView) -> str:
    return _PRIVATE_LABEL if view.is_private else view.name


def kept_query(query: str) -> str:
    """Return the part of an address that describes the view."""
    kept = QueryDict(query, mutable=True)
    for name in _OF_ONE_VISIT:
        kept.pop(name, None)
    return kept.urlencode()
