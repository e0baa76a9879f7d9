"""Submitting a job: the form, what it would cost, the code it runs."""

from collections.abc import Iterator
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project, User
from portal.accounts.principal import require_principal
from portal.compute.models import Tier
from portal.core.errors import InvalidInput, SlipwayError
from portal.core.policy import guarded_by
from portal.spend.presenters import with_cost
from portal.training.models import Job
from portal.training.services.jobs import admission_request, quote_job, submit_job
from portal.training.services.uploads import ingest_upload
from portal.web.base.environments import offer_environments
from portal.web.base.form_submission import error_text, status_of, submit_form
from portal.web.base.hardware import default_slug, offer_tiers
from portal.web.base.list_query import search_parameter
from portal.web.base.pools import offer_pools
from portal.web.base.pythons import offer_pythons
from portal.web.base.urls_for import address_of
from portal.web.jobs.form_input import priced_job, with_uploaded_code
from portal.web.jobs.forms import STRATEGIES, NewJob, clone_initial, fresh
from portal.web.jobs.presenters import job_of
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.training import Quote

_CHUNK_BYTES = 1024 * 1024
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_WHERE = {"area": "projects", "section": "jobs"}


@guarded_by(_RUN)
@require_http_methods(["GET", "HEAD", "POST"])
def project_job_new(request: HttpRequest, project: str) -> HttpResponse:
    """Show the form of a new job, quote it, submit it. `?from=` copies an earlier job."""
    project_row, by = gated_project(request), require_principal(request).user
    source = _source(request, project_row)
    offered = list(Tier.objects.offered())
    form = _form(request, project_row, source, offered)
    asks_price = request.POST.get("do") == "quote"
    done = None
    if not asks_price:
        done = submit_form(request, form, lambda _: _submit(project_row, by, form))
    if done:
        messages.success(request, f"{done.result.workload.name} submitted.")
        return redirect(address_of(project_row, "job", done.result.workload_id))
    offer_tiers(form, project_row, offered)
    offer_pools(form, project_row, by)
    offer_environments(form, project_row, automatic="Automatic: files in the code, then {}")
    offer_pythons(form, automatic="Automatic: files in the code, then {}")
    context = {
        "form": form,
        "source": source,
        "strategies": STRATEGIES.items(),
        **_priced(project_row, by, form),
    }
    status = 200 if asks_price else status_of(form)
    return render(request, "web/jobs/new.html", context | _WHERE, status=status)


def _source(request: HttpRequest, project: Project) -> Job | None:
    requested = request.POST.get("from") or search_parameter(request, "from")
    return job_of(project, requested) if requested else None


def _form(
    request: HttpRequest, project: Project, source: Job | None, offered: list[Tier]
) -> NewJob:
    initial = clone_initial(source) if source else fresh(default_slug(offered))
    if source is None:
        initial["environment"] = search_parameter(request, "environment")
    data, fault = with_uploaded_code(request, project)
    form = NewJob(data, project=project, source=source, initial=initial)
    if fault is not None:
        form.refuse_code(fault)
    return form


def _submit(project: Project, by: Any, form: NewJob) -> Job:
    assert form.payload is not None  # noqa: S101  (the form is valid)
    return submit_job(project=project, by=by, requested=form.payload, cloned_from=form.source)


@guarded_by(_RUN)
@require_POST
def project_job_quote(request: HttpRequest, project: str) -> HttpResponse:
    """Quote the job in the form, and whether it would wait. Nothing is queued."""
    project_row, by = gated_project(request), require_principal(request).user
    form = NewJob(request.POST, project=project_row, source=_source(request, project_row))
    return render(
        request,
        "web/jobs/quote.html",
        {"form": form, "is_part": True, **_priced(project_row, by, form)},
    )


def _priced(project: Project, by: User, form: NewJob) -> dict[str, Any]:
    """Quote what can be read of the form so far, whatever else is still wrong in it."""
    chosen = str(form["strategy"].value() or "").strip().lower()
    meaning = STRATEGIES.get(chosen) or STRATEGIES.get(chosen.partition("=")[0])
    hours = _hours(form)
    try:
        requested = priced_job(project, form)
        quote: Quote = with_cost(
            quote_job(project=project, spec=requested),
            admission_request(project=project, by=by, spec=requested),
        )
    except SlipwayError as error:
        return {"quote": None, "quote_fault": error_text(error), "meaning": meaning}
    except (ValidationError, ValueError):  # the input is not complete yet
        return {"quote": None, "quote_fault": "", "meaning": meaning}
    most = round(quote.nano_usd_per_hour * hours) if hours else None
    return {
        "quote": quote,
        "most_nano_usd": most,
        "is_refused": not all(budget.would_admit for budget in quote.budgets),
        "ranks": requested.nodes * requested.procs,
        "meaning": meaning,
    }


def _hours(form: NewJob) -> float | None:
    try:
        hours = float(form["max_hours"].value() or 0)
    except ValueError:
        return None
    return hours if 0 < hours <= 8760 else None


@guarded_by(_RUN)
@require_POST
def project_job_code(request: HttpRequest, project: str) -> JsonResponse:
    """Accept a file as the body, for a form whose scripts upload it before the form is sent."""
    try:
        snapshot = ingest_upload(
            project=gated_project(request),
            by=require_principal(request).user,
            name=search_parameter(request, "name"),
            chunks=_arriving(request),
        )
    except SlipwayError as error:
        return JsonResponse({"fault": error_text(error)}, status=error.status)
    return JsonResponse(
        {"digest": snapshot.digest, "files": snapshot.files, "scripts": snapshot.scripts}
    )


def _arriving(request: HttpRequest) -> Iterator[bytes]:
    try:
        while piece := request.read(_CHUNK_BYTES):
            yield piece
    except OSError as error:
        raise InvalidInput(
            "The upload was interrupted; nothing was stored.",
            next_step="Choose the file again.",
        ) from error
