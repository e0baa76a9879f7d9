"""Starting a sweep: the form, and what it would cost."""

from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project, User
from portal.accounts.principal import require_principal
from portal.compute.models import Tier
from portal.core.errors import SlipwayError
from portal.core.policy import guarded_by
from portal.sweeps.models import Sweep
from portal.sweeps.services.quotes import quote_sweep
from portal.sweeps.services.sweeps import start_sweep
from portal.training.models import Job
from portal.web.base.environments import offer_environments
from portal.web.base.form_submission import error_text, status_of, submit_form
from portal.web.base.hardware import default_slug, offer_tiers
from portal.web.base.list_query import search_parameter
from portal.web.base.pools import offer_pools
from portal.web.base.pythons import offer_pythons
from portal.web.base.urls_for import address_of
from portal.web.jobs.form_input import priced_job, with_uploaded_code
from portal.web.jobs.forms import STRATEGIES, clone_initial, fresh
from portal.web.jobs.presenters import job_of
from portal.web.sweeps.forms import FRESH, NewSweep, read_parameters, sweep_in
from portal.web.sweeps.views.pages import WHERE
from slipway.schemas.accounts import Role, Scope

_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_PRICED = (
    *("algorithm", "trials", "parallel", "retries", "seed", "goal"),
    *("scheduler", "min_values", "eta"),
)


@guarded_by(_RUN)
@require_http_methods(["GET", "HEAD", "POST"])
def project_sweep_new(request: HttpRequest, project: str) -> HttpResponse:
    """Show the form of a new sweep, quote it, start it. `?from=` copies the settings of a job."""
    project_row, by = gated_project(request), require_principal(request).user
    offered = list(Tier.objects.offered())
    source = _source(request, project_row)
    initial = FRESH | (clone_initial(source) if source else fresh(default_slug(offered)))
    data, fault = with_uploaded_code(request, project_row)
    form = NewSweep(data, project=project_row, source=source, initial=initial)
    if fault is not None:
        form.refuse_code(fault)
    asks_price = request.POST.get("do") == "quote"
    done = None
    if not asks_price:
        done = submit_form(request, form, lambda _: _start(project_row, by, form))
    if done:
        messages.success(request, f"{done.result.name} started.")
        return redirect(address_of(project_row, "sweep", done.result.pk))
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
    return render(request, "web/sweeps/new.html", context | WHERE, status=status)


def _source(request: HttpRequest, project: Project) -> Job | None:
    requested = request.POST.get("from") or search_parameter(request, "from")
    return job_of(project, requested) if requested else None


def _start(project: Project, by: User, form: NewSweep) -> Sweep:
    assert form.sweep is not None  # noqa: S101  (the form is valid)
    return start_sweep(project=project, by=by, requested=form.sweep)


@guarded_by(_RUN)
@require_POST
def project_sweep_quote(request: HttpRequest, project: str) -> HttpResponse:
    """Quote the sweep in the form. Nothing is started."""
    project_row, by = gated_project(request), require_principal(request).user
    form = NewSweep(request.POST, project=project_row, source=_source(request, project_row))
    context = {"form": form, "is_part": True, **_priced(project_row, by, form)}
    return render(request, "web/sweeps/quote.html", context)


def _priced(project: Project, by: User, form: NewSweep) -> dict[str, Any]:
    """Quote what can be read of the form so far, whatever else is still wrong in it."""
    try:
        ranges, _ = read_parameters(str(form["params"].value() or ""))
        data = {name: form.fields[name].clean(form[name].value()) for name in _PRICED}
        # The price does not depend on the metrics, which may still be missing.
        named = {"metric": "metric", "other_metrics": [], "constraints": [], "warm_start": []}
        spec = sweep_in(priced_job(project, form), ranges, data | named)
        quote = quote_sweep(project=project, by=by, spec=spec)
    except SlipwayError as error:
        return {"quote": None, "quote_fault": error_text(error)}
    except (ValidationError, ValueError):  # the input is not complete yet
        return {"quote": None, "quote_fault": ""}
    is_refused = not all(budget.would_admit for budget in quote.job.budgets)
    return {"quote": quote.job, "sweep_quote": quote, "is_refused": is_refused}
