"""Changes to runs and saved views: edit, tag, move, save a view."""

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.principal import require_principal
from portal.core.errors import InvalidInput
from portal.core.policy import guarded_by
from portal.experiments.gates import TrackedRunRole, gated_run
from portal.experiments.services.run_changes import NOTE, change_run, move_runs, tag_runs
from portal.experiments.services.saved_views import (
    delete_view,
    save_view,
    share_view,
    view_of,
)
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.experiments.forms import NewView, RunDetails, RunTag
from portal.web.experiments.saved_views import address_of_view
from portal.web.experiments.views.selection import chosen_runs, return_url, warn_of_unchanged
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.experiments import RunChange

_SEE = ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ)
_CHANGE = ProjectRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE)
_WHERE = {"area": "projects", "section": "experiments"}
_NOT_ACTIVE = "not active in this project"
_MOST_DIGITS = 9


@guarded_by(TrackedRunRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_run_edit(request: HttpRequest, project: str, run: str) -> HttpResponse:
    """Edit the name and the notes of a run."""
    project_row, edited = gated_project(request), gated_run(request)
    initial = {"name": edited.facts.name, "note": edited.facts.tags.get(NOTE, "")}
    form = RunDetails(sent(request), initial=initial)
    done = submit_form(
        request,
        form,
        lambda data: change_run(
            project=project_row,
            run=edited,
            change=RunChange(name=data["name"], note=data["note"].replace("\r\n", "\n")),
        ),
    )
    if done:
        messages.success(request, "Run saved.")
        return redirect("project_run", project_row.slug, run)
    context = {"form": form, "run": edited}
    status = status_of(form)
    return render(request, "web/experiments/edit.html", context | _WHERE, status=status)


@guarded_by(_CHANGE)
@require_POST
def project_runs_tag(request: HttpRequest, project: str) -> HttpResponse:
    """Set a tag of the chosen runs, or remove it."""
    project_row, form = gated_project(request), RunTag(request.POST)
    if not form.is_valid():
        faults = [fault for faults in form.errors.values() for fault in faults]
        messages.error(request, " ".join(str(fault) for fault in faults))
        return redirect(return_url(request, project_row))
    done = one_click(
        request,
        lambda: tag_runs(project=project_row, run_ids=chosen_runs(request), tags=form.tags),
    )
    if done:
        count, verb = len(done.result), "tagged" if all(form.tags.values()) else "changed"
        if count:
            messages.success(request, f"{count} run{'' if count == 1 else 's'} {verb}.")
        warn_of_unchanged(request, count, _NOT_ACTIVE)
    return redirect(return_url(request, project_row))


@guarded_by(_CHANGE)
@require_POST
def project_runs_move(request: HttpRequest, project: str) -> HttpResponse:
    """Move the chosen runs to another experiment."""
    project_row = gated_project(request)
    done = one_click(
        request,
        lambda: move_runs(
            project=project_row,
            run_ids=chosen_runs(request),
            experiment_id=_experiment_id(request.POST.get("to", "")),
        ),
    )
    if done:
        count = len(done.result)
        if count:
            messages.success(request, f"{count} run{'' if count == 1 else 's'} moved.")
        warn_of_unchanged(request, count, _NOT_ACTIVE)
    return redirect(return_url(request, project_row))


def _experiment_id(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InvalidInput(
            "No experiment is selected.",
            field="experiment",
            next_step="Select the experiment to move the runs to.",
        )
    return int(text)


@guarded_by(_SEE)
@require_safe
def project_view(request: HttpRequest, project: str, view: str) -> HttpResponse:
    """Open a saved view."""
    project_row, person = gated_project(request), require_principal(request).user
    return redirect(address_of_view(project_row, view_of(project_row, person, view)))


@guarded_by(_CHANGE)
@require_POST
def project_view_save(request: HttpRequest, project: str) -> HttpResponse:
    """Save the list of runs that is open under a name."""
    project_row, by = gated_project(request), require_principal(request).user
    form = NewView(request.POST)
    if not form.is_valid():
        messages.error(request, "Give the view a name of at most 100 characters.")
        return redirect(return_url(request, project_row))
    done = one_click(
        request,
        lambda: save_view(
            project=project_row,
            by=by,
            name=form.cleaned_data["name"],
            query=form.cleaned_data["query"],
            experiment_id=form.cleaned_data["experiment"],
            private=form.cleaned_data["private"],
        ),
    )
    if done is None:
        return redirect(return_url(request, project_row))
    whom = "Only you see it." if done.result.is_private else "Its address opens it for others."
    messages.success(request, f"View {done.result.name} saved. {whom}")
    return redirect(address_of_view(project_row, done.result))


@guarded_by(_CHANGE)
@require_POST
def project_view_share(request: HttpRequest, project: str, view: str) -> HttpResponse:
    """Share a private view of the person with the project."""
    project_row, by = gated_project(request), require_principal(request).user
    done = one_click(request, lambda: share_view(project=project_row, by=by, view_id=view))
    if done is None:
        return redirect(reverse("project_runs", args=[project_row.slug]))
    messages.success(request, f"The project shares the view {done.result.name} now.")
    return redirect(address_of_view(project_row, done.result))


@guarded_by(_CHANGE)
@require_POST
def project_view_delete(request: HttpRequest, project: str, view: str) -> HttpResponse:
    """Delete a saved view."""
    project_row, by = gated_project(request), require_principal(request).user
    done = one_click(request, lambda: delete_view(project=project_row, by=by, view_id=view))
    if done:
        messages.success(request, f"View {done.result.name} deleted.")
    return redirect(reverse("project_runs", args=[project_row.slug]))
