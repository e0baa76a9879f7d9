"""Addresses of saved views."""

from django.http import QueryDict
from django.urls import reverse

from portal.accounts.models import Project
from portal.experiments.models import SavedView


def address_of_view(project: Project, view: SavedView) -> str:
    """Return the address of the list that a view describes."""
    if view.experiment_id is None:
        address = reverse("project_runs", args=[project.slug])
    else:
        address = reverse("project_experiment", args=[project.slug, view.experiment_id])
    query = QueryDict(view.query, mutable=True)
    query["view"] = view.pk
    return f"{address}?{query.urlencode()}"
