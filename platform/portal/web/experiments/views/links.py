"""Addresses that MLflow's client prints, such as "View run … at", and where they lead to."""

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from portal.accounts.gates import SignedIn
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.core.policy import Public, guarded_by
from portal.experiments.factories import tracker
from slipway.schemas.accounts import Scope

_LARGEST_ID = 2**31 - 1
_NO_PROJECT = "-"


@guarded_by(
    Public("a script that reads the fragment of its address; it contains nothing of anybody")
)
@require_safe
def mlflow_page(request: HttpRequest, project: str = "") -> HttpResponse:
    """Lead to the page of what an address of MLflow's own pages names.

    The client prints addresses such as `/mlflow/churn/#/experiments/1/runs/…`. Browsers keep the
    part after # to themselves, so a script of the page reads it.
    """
    return render(request, "web/experiments/mlflow_page.html", {"linked_project": project})


@guarded_by(SignedIn(Scope.EXPERIMENTS_READ))
@require_safe
def open_run(request: HttpRequest, run: str) -> HttpResponse:
    """Redirect to the page of a run, whose address does not name its project."""
    return redirect("project_run", _slug_of(request, tracker().project_of_run(run)), run)


@guarded_by(SignedIn(Scope.EXPERIMENTS_READ))
@require_safe
def open_experiment(request: HttpRequest, experiment: int) -> HttpResponse:
    """Redirect to the page of an experiment, whose address does not name its project."""
    is_possible = experiment <= _LARGEST_ID
    project_id = tracker().project_of_experiment(experiment) if is_possible else None
    return redirect("project_experiment", _slug_of(request, project_id), experiment)


def _slug_of(request: HttpRequest, project_id: str | None) -> str:
    visible = Project.objects.visible_to(require_principal(request).user)
    # The query is made without a project too: a missing run must cost what a foreign one does.
    project = visible.filter(pk=project_id or _NO_PROJECT).first()
    if project is None:
        raise Http404
    return project.slug
