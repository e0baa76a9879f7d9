"""Experiments of a project: the list, the runs of one or of all, the trash."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.models import Project
from portal.accounts.principal import require_principal
from portal.compute.resources import memory_text
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.experiments.factories import is_mlflow_reachable, tracker
from portal.experiments.filters import FieldKind
from portal.experiments.ports import ExperimentFacts, RunSearch, Stage
from portal.experiments.services.deletion import (
    KEPT_DAYS,
    delete_experiment,
    delete_runs,
    empty_trash,
    restore_experiment,
    restore_runs,
)
from portal.experiments.services.saved_views import kept_query, views_of
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click
from portal.web.base.list_query import listing_of, search_parameter
from portal.web.base.urls_for import address_of
from portal.web.experiments.presenters.curves import Curves, curves_of
from portal.web.experiments.presenters.runs import (
    DETAIL_COLUMNS,
    View,
    datetime_from_ms,
    group_query,
    number,
    view_of,
)
from portal.web.experiments.views.selection import chosen_runs, return_url, warn_of_unchanged
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.experiments import SYSTEM_TAGS

_CHARTS_LISTED = 2
_MIB = 1024**2
_UNDO = "undo_runs"
_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_CHANGE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_DESTROY = ProjectRole(Role.MAINTAINER, Scope.EXPERIMENTS_WRITE)
_WHERE = {"area": "projects", "section": "experiments"}


@guarded_by(_SEE)
@require_safe
def project_experiments(request: HttpRequest, project: str) -> HttpResponse:
    """List the experiments, the one used last first."""
    project_row = gated_project(request)
    stage = _stage(request)
    experiments = tracker().experiments(
        project_row.pk, stage=stage, text=search_parameter(request, "q")
    )
    rows = [
        (it, datetime_from_ms(it.newest_ms), datetime_from_ms(it.created_ms)) for it in experiments
    ]
    context = {
        "mlflow_is_away": not is_mlflow_reachable(),
        "listing": listing_of(request, experiments),
        "region": "experiments",
        "rows": rows,
        "stage": stage,
        "runs_in_all": sum(it.runs for it in experiments),
        "may_change": gated_role(request).at_least(Role.CONTRIBUTOR),
        "may_destroy": gated_role(request).at_least(Role.MAINTAINER),
        "kept_days": KEPT_DAYS,
        "snippet_uri": (
            f"export MLFLOW_TRACKING_URI={settings.SLIPWAY_URL}/mlflow/{project_row.slug}"
        ),
    }
    return render(request, "web/experiments/list.html", context | _WHERE)


@guarded_by(_SEE)
@require_safe
def project_runs(request: HttpRequest, project: str) -> HttpResponse:
    """List the runs of all experiments in use, or those in the trash."""
    return _runs_page(request, None)


@guarded_by(_SEE)
@require_safe
def project_experiment(request: HttpRequest, project: str, experiment: int) -> HttpResponse:
    """List the runs of one experiment."""
    return _runs_page(request, experiment)


def _runs_page(request: HttpRequest, experiment_id: int | None) -> HttpResponse:
    project = gated_project(request)
    active = tracker().experiments(project.pk)
    experiment = None if experiment_id is None else _experiment(project, experiment_id, active)
    view = view_of(request, project.pk, [experiment.id] if experiment else [])
    context = {
        "mlflow_is_away": not is_mlflow_reachable(),
        "experiment": experiment,
        "view": view,
        "curves": _curves_of(project.slug, view),
        "groups": [
            (
                group,
                group_query(view, group),
                datetime_from_ms(group.newest_ms),
                _mean_cells(group.means, view),
            )
            for group in view.groups
        ],
        "experiments": [(it.id, it.name) for it in active],
        "saved_views": views_of(project, require_principal(request).user),
        "view_query": kept_query(request.GET.urlencode()),
        "undo": request.session.pop(_UNDO, None) if view.first else None,
        "may_change": gated_role(request).at_least(Role.CONTRIBUTOR),
        "may_destroy": gated_role(request).at_least(Role.MAINTAINER),
        "kept_days": KEPT_DAYS,
    }
    return render(request, "web/experiments/runs.html", context | _WHERE)


def _curves_of(project_slug: str, view: View) -> Curves | None:
    """Return the charts of the listed runs, unless they are grouped or in the trash."""
    if view.group or not view.rows or view.stage is Stage.DELETED:
        return None
    keys = {
        kind: [column.key for column in view.columns if column.kind is kind]
        for kind in (FieldKind.METRIC, FieldKind.PARAM)
    }
    return curves_of(
        project_slug,
        [row.run for row in view.rows],
        keys[FieldKind.METRIC],
        charts=_CHARTS_LISTED,
        groups=keys[FieldKind.PARAM],
        live=view.any_running,
    )


def _mean_cells(means: dict[str, float], view: Any) -> list[str]:
    metrics = [column.key for column in view.columns if column.kind == "metrics"]
    return [number(means[key]) if key in means else "" for key in metrics]


@guarded_by(_SEE)
@require_safe
def project_columns(request: HttpRequest, project: str) -> HttpResponse:
    """Offer the columns a list of runs can have."""
    experiment = request.GET.get("experiment", "")
    ids = (int(experiment),) if experiment.isascii() and experiment.isdigit() else ()
    known = tracker().fields(RunSearch(gated_project(request).pk, ids))
    offered = [str(it) for it in known.fields if not it.key.startswith(SYSTEM_TAGS)]
    chosen = [text for text in request.GET.getlist("c") if text][:100]
    logged = [text for text in dict.fromkeys([*chosen, *offered]) if text not in DETAIL_COLUMNS]
    context = {
        "details": [(text, label, text in chosen) for text, label in DETAIL_COLUMNS.items()],
        "fields": [(text, text in chosen) for text in logged],
        "known": known,
    }
    return render(request, "web/experiments/columns.html", context | _WHERE)


@guarded_by(_CHANGE)
@require_POST
def project_runs_delete(request: HttpRequest, project: str) -> HttpResponse:
    """Move the chosen runs to the trash, and offer to undo it."""
    project_row = gated_project(request)
    done = one_click(
        request, lambda: delete_runs(project=project_row, run_ids=chosen_runs(request))
    )
    if done and done.result:
        request.session[_UNDO] = done.result
    if done:
        warn_of_unchanged(request, len(done.result), "not active in this project")
    return redirect(return_url(request, project_row))


@guarded_by(_CHANGE)
@require_POST
def project_runs_restore(request: HttpRequest, project: str) -> HttpResponse:
    """Restore the chosen runs from the trash."""
    project_row = gated_project(request)
    done = one_click(
        request, lambda: restore_runs(project=project_row, run_ids=chosen_runs(request))
    )
    if done:
        count = len(done.result)
        messages.success(request, f"{count} run{'' if count == 1 else 's'} restored.")
        warn_of_unchanged(request, count, "not in the trash, or its experiment is")
    return redirect(return_url(request, project_row))


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_experiment_delete(request: HttpRequest, project: str, experiment: int) -> HttpResponse:
    """Ask, then put an experiment in the trash."""
    project_row = gated_project(request)
    requested = _experiment(project_row, experiment)
    if request.method == "POST":
        done = one_click(
            request, lambda: delete_experiment(project=project_row, experiment_id=experiment)
        )
        if done:
            messages.success(request, f"{requested.name} moved to the trash.")
        return redirect(address_of(project_row, "experiments"))
    question = Confirmation(
        title=f"Move {requested.name} to the trash?",
        effects=(
            f"Its {requested.runs} run{'' if requested.runs == 1 else 's'} will be moved with it.",
            f"For {KEPT_DAYS} days you can restore it under Experiments → Trash.",
        ),
        button="Move to trash",
        back=reverse("project_experiment", args=[project_row.slug, experiment]),
        area="projects",
        section="experiments",
    )
    return show_confirmation(request, question)


@guarded_by(_CHANGE)
@require_POST
def project_experiment_restore(request: HttpRequest, project: str, experiment: int) -> HttpResponse:
    """Restore an experiment from the trash."""
    project_row = gated_project(request)
    done = one_click(
        request, lambda: restore_experiment(project=project_row, experiment_id=experiment)
    )
    if done:
        messages.success(request, "Experiment and its runs restored.")
    return redirect(address_of(project_row, "experiments"))


@guarded_by(_DESTROY)
@require_http_methods(["GET", "HEAD", "POST"])
def project_trash_empty(request: HttpRequest, project: str) -> HttpResponse:
    """Ask, then destroy what is in the trash, and say what that freed."""
    project_row = gated_project(request)
    back = f"{reverse('project_runs', args=[project_row.slug])}?stage=deleted"
    if request.method == "POST":
        done = one_click(request, lambda: empty_trash(project=project_row))
        if done:
            freed = done.result
            messages.success(
                request,
                f"{freed.runs} run{'' if freed.runs == 1 else 's'} deleted, {freed.files} "
                f"file{'' if freed.files == 1 else 's'} and {_size(freed.size_bytes)} freed.",
            )
        return redirect(back)
    question = Confirmation(
        title="Empty the trash?",
        effects=(
            (
                "Every run in the trash is permanently deleted: metrics, parameters, tags and "
                "artifacts."
            ),
            "Artifacts that no longer belong to a run are deleted too.",
            "You cannot undo this.",
        ),
        button="Empty the trash",
        back=back,
        area="projects",
        section="experiments",
    )
    return show_confirmation(request, question)


def _size(size_bytes: int) -> str:
    return memory_text(size_bytes) if size_bytes >= _MIB else f"{size_bytes:,} bytes"


def _stage(request: HttpRequest) -> Stage:
    return Stage.DELETED if request.GET.get("stage") == "deleted" else Stage.ACTIVE


def _experiment(
    project: Project, experiment_id: int, active: Sequence[ExperimentFacts] | None = None
) -> ExperimentFacts:
    """Return an experiment, looking first among the active ones. Raises NotFound."""
    if active is None:
        active = tracker().experiments(project.pk)
    for experiment in active:
        if experiment.id == experiment_id:
            return experiment
    for experiment in tracker().experiments(project.pk, stage=Stage.DELETED):
        if experiment.id == experiment_id:
            return experiment
    raise NotFound
