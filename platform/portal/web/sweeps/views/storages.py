"""Optuna storages of a project: the list, and deletion."""

from django.contrib import messages
from django.db.models import Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.core.policy import guarded_by
from portal.sweeps.gates import OptunaStorageRole, gated_storage
from portal.sweeps.models import OptunaStorage, OptunaStudy
from portal.sweeps.services.storage_deletion import delete_storage, newest_open_job
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.form_submission import one_click
from portal.web.base.list_query import listing
from portal.web.sweeps.studies import StorageSummary
from portal.web.sweeps.views.pages import WHERE
from slipway.schemas.accounts import Role, Scope

_NAMED = 5


@guarded_by(ProjectRole(Role.VIEWER, Scope.EXPERIMENTS_READ))
@require_safe
def project_optuna_storages(request: HttpRequest, project: str) -> HttpResponse:
    """List the storages of Optuna studies with their sizes, newest first."""
    storages = OptunaStorage.objects.of_project(gated_project(request)).with_studies()
    shown = listing(request, storages.select_related("created_by"), filters=())
    context = {
        "listing": shown,
        "region": "storages",
        "rows": [StorageSummary.of(storage) for storage in shown.page.items],
        "may_delete": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/sweeps/storages.html", context | WHERE)


@guarded_by(OptunaStorageRole(Role.CONTRIBUTOR, Scope.EXPERIMENTS_WRITE))
@require_http_methods(["GET", "HEAD", "POST"])
def project_optuna_storage_delete(request: HttpRequest, project: str, storage: str) -> HttpResponse:
    """Ask, then delete a storage with its studies and trials."""
    row = gated_storage(request)
    back = reverse("project_optuna_storages", args=[gated_project(request).slug])
    if request.method == "POST":
        if one_click(request, lambda: delete_storage(storage=row)):
            messages.success(request, f"The Optuna storage {row.name} is deleted.")
        return redirect(back)
    studies = OptunaStudy.objects.filter(storage=row)
    names = list(studies.order_by("-changed_at", "-number").values_list("name", flat=True)[:_NAMED])
    count = studies.count()
    trials = studies.aggregate(all=Sum("trials"))["all"] or 0
    effects = ["No study is in it."]
    if count:
        more = f" and {count - len(names)} more" if count > len(names) else ""
        label = "Study" if count == 1 else "Studies"
        lost = (
            f"{label} {', '.join(name[:100] for name in names)}{more}: deleted with all trials, "
            f"{trials:,}. You cannot undo this."
        )
        effects = [lost]
    job = newest_open_job(row)
    if job is not None:
        effects.append(
            f"The job {job.name} writes to it: cancel it or wait for its end, or the storage is "
            "not deleted."
        )
    question = Confirmation(
        title=f"Delete the Optuna storage {row.name}?",
        effects=(
            *effects,
            "Notebooks and other programs that use it get an error.",
            "Jobs and runs of its trials stay.",
        ),
        button="Delete the storage",
        back=back,
        **WHERE,
    )
    return show_confirmation(request, question)
