"""Notebooks as jobs: verified, run with parameters, what came of it."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from portal.accounts.models import User
from portal.accounts.principal import require_principal
from portal.compute.models import Tier
from portal.core.errors import NotFound, SlipwayError
from portal.core.policy import guarded_by
from portal.notebooks.file_gates import NotebookRole, NotebookRunRole, gated_notebook, gated_run
from portal.notebooks.models import NotebookVersion
from portal.notebooks.previews import preview_of
from portal.notebooks.services.files_runs import NotebookRunRequest, quote_run, start_run
from portal.storage.services import open_file
from portal.web.base.environments import offer_environments
from portal.web.base.form_submission import error_text, one_click, sent, status_of, submit_form
from portal.web.base.hardware import default_slug, offer_tiers
from portal.web.base.list_query import search_parameter
from portal.web.base.notebook_cells import cell_views
from portal.web.base.pools import offer_pools
from portal.web.base.urls_for import address_of
from portal.web.notebooks.forms.runs import RunNotebook
from portal.web.notebooks.presenters.files import numbered_version, run_views
from portal.web.notebooks.views.files import MOST_PREVIEWED_BYTES, WHERE, as_file, page_of
from slipway.schemas.accounts import Role, Scope

_RUN = NotebookRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_SEE_RUN = NotebookRunRole(Role.VIEWER, Scope.WORKLOADS_READ)


@guarded_by(_RUN)
@require_POST
def project_notebook_verify(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Run the newest version, or the one named, in a clean kernel on the cheapest tier."""
    file, by = gated_notebook(request), require_principal(request).user
    number = request.POST.get("version", "")

    def start() -> None:
        start_run(
            version=numbered_version(file, number), by=by, wish=NotebookRunRequest(purpose="verify")
        )

    if one_click(request, start):
        messages.success(
            request,
            "Verification started: the notebook runs top to bottom in a clean kernel. Progress "
            "is shown below.",
        )
    return redirect(page_of(file))


@guarded_by(_RUN)
@require_http_methods(["GET", "HEAD", "POST"])
def project_notebook_run(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Fill in parameters and hardware, see the price, run a version as a job."""
    file, by = gated_notebook(request), require_principal(request).user
    version = numbered_version(
        file, request.POST.get("version", "") or search_parameter(request, "version")
    )
    offered = list(Tier.objects.offered())
    form = RunNotebook(sent(request), version=version, tier=default_slug(offered))
    asks_price = request.POST.get("do") == "quote"
    done = None
    if not asks_price:
        done = submit_form(
            request, form, lambda _: start_run(version=version, by=by, wish=form.wish)
        )
    if done:
        messages.success(request, f"{file.path} is running as a job; you can close the browser.")
        return redirect(address_of(file.project, "job", done.result.pk))
    offer_tiers(form, file.project, offered)
    offer_environments(form, file.project)
    offer_pools(form, file.project, by)
    context = {
        "form": form,
        "notebook": file,
        "version": version,
        **_priced(version, by, form),
    }
    status = 200 if asks_price else status_of(form)
    return render(request, "web/notebooks/run_new.html", context | WHERE, status=status)


@guarded_by(_RUN)
@require_POST
def project_notebook_run_quote(request: HttpRequest, project: str, notebook: str) -> HttpResponse:
    """Quote the run in the form, and whether it would wait. Nothing is queued."""
    file, by = gated_notebook(request), require_principal(request).user
    version = numbered_version(file, request.POST.get("version", ""))
    form = RunNotebook(request.POST, version=version, tier="")
    return render(request, "web/jobs/quote.html", _priced(version, by, form))


def _priced(version: NotebookVersion, by: User, form: RunNotebook) -> dict[str, Any]:
    """Quote the tier that is chosen, whatever else is still wrong in the form."""
    tier = str(form["tier"].value() or "")
    hours = _hours(form)
    if not tier:
        return {"quote": None, "quote_fault": ""}
    try:
        wish = NotebookRunRequest(
            purpose="run",
            tier=tier,
            max_hours=hours,
            requirements=str(form["requirements"].value() or ""),
            environment=str(form["environment"].value() or "") or None,
            pool=str(form["pool"].value() or "") or None,
        )
        quote = quote_run(version=version, by=by, wish=wish)
    except SlipwayError as error:
        return {"quote": None, "quote_fault": error_text(error)}
    except ValueError:  # from the schema: not a valid name of a tier or an environment
        return {"quote": None, "quote_fault": "There is no such tier or environment."}
    most = round(quote.nano_usd_per_hour * hours) if hours else None
    refused = not all(budget.would_admit for budget in quote.budgets)
    return {"quote": quote, "most_nano_usd": most, "ranks": 1, "is_refused": refused}


def _hours(form: RunNotebook) -> float | None:
    try:
        hours = float(form["max_hours"].value() or 0)
    except ValueError:
        return None
    return hours if 0 < hours <= 8760 else None


@guarded_by(_SEE_RUN)
@require_safe
def project_notebook_job(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """Show the output notebook of a job, as far as it has come, and what a verification found."""
    run, viewer = gated_run(request), require_principal(request).user
    items = run_views(run.workload.project, [run], viewer)
    if not items:
        raise NotFound
    preview, is_large = None, False
    if run.output is not None:
        is_large = run.output.blob.size_bytes > MOST_PREVIEWED_BYTES
        preview = None if is_large else preview_of(b"".join(open_file(file=run.output)))
    cells = cell_views(preview) if preview else ()
    context = {"shown": items[0], "preview": preview, "cells": cells, "is_large": is_large}
    return render(request, "web/notebooks/output.html", context | WHERE)


@guarded_by(_SEE_RUN)
@require_safe
def project_notebook_output(request: HttpRequest, project: str, job: str) -> HttpResponse:
    """Download the output notebook of a job."""
    run = gated_run(request)
    if run.output is None:
        raise NotFound
    return as_file(b"".join(open_file(file=run.output)), run.path)
