"""Notebook files of a project: the list, one of them with its history, what differs."""

from django.contrib import messages
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.principal import require_principal
from portal.core.errors import Conflict
from portal.core.policy import guarded_by
from portal.notebooks.diffs import differences
from portal.notebooks.file_gates import NotebookRole, gated_notebook
from portal.notebooks.models import NotebookFile, NotebookVersion
from portal.notebooks.previews import NotebookPreview, preview_of
from portal.notebooks.services.files import branch_version, read_version, restore_version
from portal.notebooks.services.files_deletion import delete_notebook, undelete_notebook
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import error_text, one_click, sent, status_of, submit_form
from portal.web.base.list_query import listing, search_parameter
from portal.web.base.notebook_cells import cell_views
from portal.web.base.shortlist import shortlist
from portal.web.base.urls_for import address_of
from portal.web.notebooks.forms.runs import NewBranch
from portal.web.notebooks.presenters.files import (
    notebook_view,
    numbered_version,
    recent_runs,
    requested_version,
)
from slipway.schemas.accounts import Role, Scope

OFFERED_VERSIONS = 200
DELETED_SHOWN = 20
MOST_PREVIEWED_BYTES = 8 * 1024**2
_TOO_LARGE = "It is too large to show. Download it."
_SEE = NotebookRole(Role.VIEWER, Scope.FILES_READ)
_CHANGE = NotebookRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)
WHERE = {"area": "projects", "section": "notebook_files"}


def may_write(request: HttpRequest) -> bool:
    """Return whether the person is at least a contributor of the project."""
    return gated_role(request).at_least(Role.CONTRIBUTOR)


def page_of(file: NotebookFile) -> str:
    """Return the address of the page of a notebook."""
    return address_of(file.project, "notebook_file", file.pk)


@guarded_by(ProjectRole(Role.VIEWER, Scope.FILES_READ))
@require_safe
def project_notebook_files(request: HttpRequest, project: str) -> HttpResponse:
    """List the notebooks, each with its badge."""
    everything = NotebookFile.objects.of_project(gated_project(request))
    files = everything.current().matching(search_parameter(request, "q"))
    shown = listing(request, files, sorts={"path": "path"})
    newest = NotebookVersion.objects.complete().filter(
        file__in=[file.pk for file in shown.page.items], number=F("file__head")
    )
    latest = {notebook_version.file_id: notebook_version for notebook_version in newest}
    context = {
        "listing": shown,
        "region": "notebooks",
        "rows": [notebook_view(file, latest.get(file.pk)) for file in shown.page.items],
        "deleted": shortlist(everything.restorable().order_by("-deleted_at"), DELETED_SHOWN),
        "may_write": may_write(request),
    }
    return render(request, "web/notebooks/files.html", context | WHERE)


@guarded_by(_SEE)
@require_safe
def project_notebook_file(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Show a notebook: whether it is reproducible and why, its runs, its history, its cells."""
    file, viewer = gated_notebook(request), require_principal(request).user
    versions = NotebookVersion.objects.complete().filter(file=file)
    runs = recent_runs(file, viewer)
    is_part = request.headers.get("HX-Request") == "true"  # a fragment without cells
    preview = None if is_part else _preview(versions.get(number=file.head))
    context = {
        "preview": preview,
        "cells": cell_views(preview) if preview else (),
        "preview_fault": _TOO_LARGE,
        "notebook": notebook_view(file),
        "listing": listing(request, versions, filters=()),
        "runs": runs,
        "any_active": any(not shown_run.status.has_ended for shown_run in runs),
        "told": next((shown_run for shown_run in runs if shown_run.run.report), None),
        "may_write": may_write(request),
    }
    return render(request, "web/notebooks/file.html", context | WHERE)


def _preview(version: NotebookVersion) -> NotebookPreview | None:
    """Return a preview for people who may not run the notebook, or None if it is too large."""
    halves = [half.file.blob.size_bytes for half in (version.source, version.outputs) if half]
    return preview_of(read_version(version)) if sum(halves) <= MOST_PREVIEWED_BYTES else None


@guarded_by(_SEE)
@require_safe
def project_notebook_diff(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Show the differences of two versions by cell, by default the newest and the one before."""
    file = gated_notebook(request)
    after = requested_version(request, file, "to")
    since = search_parameter(request, "from") or str(max(1, after.number - 1))
    before = numbered_version(file, since)
    cells, fault = [], ""
    try:
        cells = differences(read_version(before), read_version(after))
    except Conflict as error:
        fault = error_text(error)
    context = {
        "notebook": file,
        "before": before,
        "after": after,
        "numbers": range(file.head, max(0, file.head - OFFERED_VERSIONS), -1),
        "cells": cells,
        "changed": sum(1 for cell in cells if cell.kind != "same"),
        "fault": fault,
        "may_write": may_write(request),
    }
    return render(request, "web/notebooks/diff.html", context | WHERE)


@guarded_by(_SEE)
@require_safe
def project_notebook_download(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Download a version as the .ipynb that was saved."""
    version = requested_version(request, gated_notebook(request), "version")
    return as_file(read_version(version), version.file.path)


def as_file(content: bytes, path: str) -> HttpResponse:
    """Return a notebook as a download. Browsers never show it as a page."""
    answer = HttpResponse(content, content_type="application/x-ipynb+json")
    name = path.rpartition("/")[2]
    answer.headers["Content-Disposition"] = content_disposition_header(True, name) or ""
    answer.headers["X-Content-Type-Options"] = "nosniff"
    answer.headers["Cache-Control"] = "private, no-store"
    return answer


@guarded_by(_CHANGE)
@require_POST
def project_notebook_restore(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Make an old version the newest again."""
    file, by = gated_notebook(request), require_principal(request).user
    number = request.POST.get("version", "")
    done = one_click(
        request, lambda: restore_version(version=numbered_version(file, number), by=by)
    )
    if done:
        messages.success(request, f"Restored as version {done.result.number}.")
    return redirect(page_of(file))


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_notebook_branch(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Create a notebook from a version of this one."""
    file, by = gated_notebook(request), require_principal(request).user
    version = numbered_version(
        file, request.POST.get("version", "") or search_parameter(request, "version")
    )
    stem = file.path.removesuffix(".ipynb")
    form = NewBranch(sent(request), initial={"path": f"{stem}-branch.ipynb"})
    done = submit_form(
        request, form, lambda data: branch_version(version=version, path=data["path"], by=by)
    )
    if done:
        messages.success(request, f"{done.result.file.path} created from version {version.number}.")
        return redirect(page_of(done.result.file))
    context = {"form": form, "notebook": file, "version": version}
    return render(request, "web/notebooks/branch.html", context | WHERE, status=status_of(form))


@guarded_by(_CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_notebook_file_delete(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Ask, then delete a notebook with its versions."""
    file = gated_notebook(request)
    if request.method == "POST":
        if not one_click(request, lambda: delete_notebook(file=file)):
            return redirect(page_of(file))
        messages.success(request, f"{file.path} deleted. You can restore it below.")
        return redirect(address_of(file.project, "notebook_files"))
    question = Confirmation(
        title=f"Delete {file.path}?",
        effects=(
            (
                f"Its history is deleted too, up to version {file.head}. Jobs that ran it are "
                "retained."
            ),
            "The file in the project's workspace is retained; its next save starts a new history.",
            "You can restore it for three days.",
        ),
        button="Delete the notebook",
        back=page_of(file),
        **WHERE,
    )
    return show_confirmation(request, question)


@guarded_by(NotebookRole(Role.CONTRIBUTOR, Scope.FILES_WRITE, deleted=True))
@require_POST
def project_notebook_file_undelete(
    request: HttpRequest, project: str, notebook: str
) -> HttpResponse:
    """Undo the deletion of a notebook."""
    file = gated_notebook(request)
    if one_click(request, lambda: undelete_notebook(file=file)):
        messages.success(request, f"{file.path} restored.")
    return redirect(address_of(file.project, "notebook_files"))
