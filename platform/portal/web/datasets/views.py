"""Datasets of a project: the list, one of them, a version or draft, what is done with them."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.models import User
from portal.accounts.principal import require_principal
from portal.core.policy import guarded_by
from portal.datasets.gates import DatasetRole, VersionRole, gated_dataset, gated_version
from portal.datasets.models import Dataset, Version
from portal.datasets.services.datasets import (
    create_dataset,
    delete_dataset,
    delete_version,
    restore_dataset,
    restore_version,
)
from portal.datasets.services.drafts import commit_draft, open_draft
from portal.datasets.services.uses import jobs_reading, uses_of
from portal.monitoring.lineage import origin_of
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.base.list_query import listing, search_parameter
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.base.urls_for import address_of
from portal.web.datasets.forms import NewDataset
from portal.web.datasets.presenters import (
    changes_of,
    previewed,
    ready_versions,
    table_views,
)
from portal.web.datasets.read_settings import form_context, settings_of
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.datasets import VersionState

FILES_SHOWN = 50
DELETED_SHOWN = 20
DRAFTS_SHOWN = 10
_SEE = ProjectRole(Role.VIEWER, Scope.FILES_READ)
_WRITE = ProjectRole(Role.CONTRIBUTOR, Scope.FILES_WRITE)
_WHERE = {"area": "projects", "section": "datasets"}


def _may_write(request: HttpRequest) -> bool:
    return gated_role(request).at_least(Role.CONTRIBUTOR)


@guarded_by(_SEE)
@require_safe
def project_datasets(request: HttpRequest, project: str) -> HttpResponse:
    """List the datasets, newest first unless asked otherwise."""
    everything = Dataset.objects.of_project(gated_project(request))
    datasets = everything.current().matching(search_parameter(request, "q")).with_totals()
    shown = listing(request, datasets, sorts={"name": "name"})
    context = {
        "listing": shown,
        "region": "datasets",
        "rows": shown.page.items,
        "deleted": shortlist(everything.can_be_restored(), DELETED_SHOWN),
        "may_write": _may_write(request),
        **_WHERE,
    }
    return render(request, "web/datasets/list.html", context)


@guarded_by(_WRITE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_dataset_new(request: HttpRequest, project: str) -> HttpResponse:
    """Create a dataset and start its first version."""
    project_row, by = gated_project(request), require_principal(request).user
    form = NewDataset(sent(request))

    def make(data: dict[str, Any]) -> Version:
        return open_draft(dataset=create_dataset(project=project_row, by=by, **data), by=by)

    done = submit_form(request, form, make)
    if done:
        return redirect(_page(done.result))
    context = {"form": form, **_WHERE}
    return render(request, "web/datasets/new.html", context, status=status_of(form))


def _page(version: Version) -> str:
    dataset = version.dataset
    name = str(version.number or version.pk)
    return address_of(dataset.project, "dataset_version", dataset.name, name)


@guarded_by(DatasetRole(Role.VIEWER, Scope.FILES_READ))
@require_safe
def project_dataset(request: HttpRequest, project: str, dataset: str) -> HttpResponse:
    """Show a dataset and its versions, and the person's own drafts that are not done."""
    dataset_row, viewer = gated_dataset(request), require_principal(request).user
    context = {
        "dataset": dataset_row,
        "listing": listing(request, ready_versions(dataset_row), filters=()),
        "drafts": _drafts_of(dataset_row, viewer),
        "deleted": shortlist(dataset_row.versions.can_be_restored(), DELETED_SHOWN),
        "may_write": _may_write(request),
        **_WHERE,
    }
    return render(request, "web/datasets/dataset.html", context)


def _drafts_of(dataset: Dataset, viewer: User) -> Shortlist[Version]:
    unfinished = (VersionState.DRAFT, VersionState.CHECKING, VersionState.REFUSED)
    versions = Version.objects.filter(dataset=dataset, created_by=viewer, state__in=unfinished)
    return shortlist(versions.order_by("-pk"), DRAFTS_SHOWN)


@guarded_by(DatasetRole(Role.CONTRIBUTOR, Scope.FILES_WRITE))
@require_POST
def project_dataset_begin(request: HttpRequest, project: str, dataset: str) -> HttpResponse:
    """Start another version."""
    by = require_principal(request).user
    return redirect(_page(open_draft(dataset=gated_dataset(request), by=by)))


@guarded_by(VersionRole(Role.VIEWER, Scope.FILES_READ))
@require_safe
def project_dataset_version(
    request: HttpRequest, project: str, dataset: str, version: str
) -> HttpResponse:
    """Show a version, or the draft it is to become."""
    version_row = gated_version(request)
    files = version_row.entries.files().order_by("path")
    text = search_parameter(request, "q")
    files = files.filter(path__icontains=text) if text else files
    listed = shortlist(files, FILES_SHOWN)
    context = {
        "dataset": version_row.dataset,
        "version": version_row,
        "files": listed,
        "files_found": len(listed) + listed.left_out,
        "may_write": _may_write(request),
        **_WHERE,
    }
    if version_row.state != VersionState.READY:
        context["declared"] = form_context(version_row)
        return render(request, "web/datasets/draft.html", context)
    uses = uses_of(version_row)
    context |= {
        "tables": table_views(version_row),
        "preview": previewed(
            version_row, search_parameter(request, "table"), search_parameter(request, "rows")
        ),
        "changes": changes_of(version_row, search_parameter(request, "since")),
        "others": ready_versions(version_row.dataset).exclude(pk=version_row.pk),
        "uses": uses,
        "uses_left_out": version_row.uses.count() - len(uses),
        "origin": origin_of(version_row),
    }
    return render(request, "web/datasets/version.html", context)


@guarded_by(VersionRole(Role.CONTRIBUTOR, Scope.FILES_WRITE))
@require_POST
def project_dataset_commit(
    request: HttpRequest, project: str, dataset: str, version: str
) -> HttpResponse:
    """Close a draft. Its page shows the progress of the check."""
    version_row = gated_version(request)
    allowed = bool(request.POST.get("allow_bad_rows"))
    one_click(
        request,
        lambda: commit_draft(
            draft=version_row, allow_bad_rows=allowed, settings=settings_of(request.POST)
        ),
    )
    return redirect(_page(version_row))


@guarded_by(DatasetRole(Role.CONTRIBUTOR, Scope.FILES_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_dataset_delete(request: HttpRequest, project: str, dataset: str) -> HttpResponse:
    """Ask, then delete a dataset."""
    dataset_row = gated_dataset(request)
    back = address_of(dataset_row.project, "dataset", dataset_row.name)
    if request.method == "POST":
        if not one_click(request, lambda: delete_dataset(dataset=dataset_row)):
            return redirect(back)
        messages.success(request, f"{dataset_row.name} deleted. You can restore it below.")
        return redirect(address_of(dataset_row.project, "datasets"))
    count = ready_versions(dataset_row).count()
    question = Confirmation(
        title=f"Delete the dataset {dataset_row.name}?",
        effects=(
            f"Its {count} version{'' if count == 1 else 's'} will no longer be readable by jobs.",
            "You can restore it for three days; then its storage is freed.",
        ),
        button="Delete the dataset",
        back=back,
        **_WHERE,
    )
    return show_confirmation(request, question)


@guarded_by(VersionRole(Role.CONTRIBUTOR, Scope.FILES_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_dataset_version_delete(
    request: HttpRequest, project: str, dataset: str, version: str
) -> HttpResponse:
    """Ask, then delete a version or a draft."""
    version_row = gated_version(request)
    back = address_of(version_row.dataset.project, "dataset", version_row.dataset.name)
    if request.method == "POST":
        if one_click(request, lambda: delete_version(version=version_row)):
            message = f"{version_row.reference} deleted. You can restore it below."
            messages.success(request, message if version_row.number else "Draft deleted.")
        return redirect(back)
    jobs = jobs_reading(version_row)
    question = Confirmation(
        title=f"Delete {version_row.reference}?" if version_row.number else "Delete this draft?",
        effects=(
            f"{jobs} job{'' if jobs == 1 else 's'} can then no longer be reproduced.",
            "You can restore it for three days; then its storage is freed.",
        )
        if version_row.number
        else ("Its uploaded files are deleted.",),
        button="Delete",
        back=back,
        **_WHERE,
    )
    return show_confirmation(request, question)


@guarded_by(DatasetRole(Role.CONTRIBUTOR, Scope.FILES_WRITE, deleted=True))
@require_POST
def project_dataset_restore(request: HttpRequest, project: str, dataset: str) -> HttpResponse:
    """Bring back a dataset that was deleted."""
    dataset_row = gated_dataset(request)
    if not one_click(request, lambda: restore_dataset(dataset=dataset_row)):
        return redirect(address_of(dataset_row.project, "datasets"))
    messages.success(request, f"{dataset_row.name} restored.")
    return redirect(address_of(dataset_row.project, "dataset", dataset_row.name))


@guarded_by(VersionRole(Role.CONTRIBUTOR, Scope.FILES_WRITE, deleted=True))
@require_POST
def project_dataset_version_restore(
    request: HttpRequest, project: str, dataset: str, version: str
) -> HttpResponse:
    """Bring back a version that was deleted."""
    version_row = gated_version(request)
    if one_click(request, lambda: restore_version(version=version_row)):
        messages.success(request, f"{version_row.reference} restored.")
    return redirect(address_of(version_row.dataset.project, "dataset", version_row.dataset.name))
