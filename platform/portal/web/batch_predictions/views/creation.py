"""Starting a batch prediction: the form, and what it would cost and use."""

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST
from pydantic import ValidationError

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project, User
from portal.accounts.principal import require_principal
from portal.batch_predictions.models import BatchPrediction
from portal.batch_predictions.services.submission import quote_prediction, start_prediction
from portal.compute.models import Tier
from portal.core.errors import SlipwayError
from portal.core.policy import guarded_by
from portal.datasets.models import Dataset
from portal.registry.catalog import list_models
from portal.web.base.environments import MODEL_PACKAGES, offer_environments
from portal.web.base.form_submission import error_text, sent, status_of, submit_form
from portal.web.base.hardware import default_slug, offer_tiers
from portal.web.base.list_query import search_parameter
from portal.web.base.pools import offer_pools
from portal.web.batch_predictions.forms import NewBatchPrediction, request_of
from portal.web.batch_predictions.views.pages import WHERE
from slipway.schemas.accounts import Role, Scope

_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_OFFERED = 100


@guarded_by(_RUN)
@require_http_methods(["GET", "HEAD", "POST"])
def project_batch_prediction_new(request: HttpRequest, project: str) -> HttpResponse:
    """Show the form, quote it, start it. The URL may name the model and the data."""
    project_row, by = gated_project(request), require_principal(request).user
    offered = list(Tier.objects.offered())
    names = ("model", "version", "dataset")
    initial = {name: search_parameter(request, name) for name in names}
    form = NewBatchPrediction(sent(request), initial=initial | {"tier": default_slug(offered)})
    asks_price = request.POST.get("do") == "quote"
    done = None
    if not asks_price:
        done = submit_form(
            request,
            form,
            lambda _: _start(project_row, by, form),
        )
    if done:
        messages.success(request, "The batch prediction was submitted.")
        return redirect("project_batch_prediction", project_row.slug, done.result.pk)
    offer_tiers(form, project_row, offered)
    offer_pools(form, project_row, by)
    offer_environments(form, project_row, automatic=MODEL_PACKAGES, installation=False)
    datasets = Dataset.objects.of_project(project_row).current().order_by("-pk")
    context = {
        "form": form,
        "models": [item.name for item in list_models(project_row.pk, limit=_OFFERED).items],
        "datasets": list(datasets.values_list("name", flat=True)[:_OFFERED]),
        **_priced(project_row, by, form),
    }
    status = 200 if asks_price else status_of(form)
    return render(request, "web/batch_predictions/new.html", context | WHERE, status=status)


def _start(project: Project, by: User, form: NewBatchPrediction) -> BatchPrediction:
    try:
        return start_prediction(project=project, by=by, requested=form.payload)
    except SlipwayError as error:
        error.field = form.names.get(error.field or "", error.field)
        raise


@guarded_by(_RUN)
@require_POST
def project_batch_prediction_quote(request: HttpRequest, project: str) -> HttpResponse:
    """Quote the form, with what the prediction would use. Nothing is started."""
    form = NewBatchPrediction(request.POST)
    priced = _priced(gated_project(request), require_principal(request).user, form)
    return render(request, "web/batch_predictions/quote.html", {"form": form} | priced)


def _priced(project: Project, by: User, form: NewBatchPrediction) -> dict[str, Any]:
    """Quote what can be read of the form so far."""
    values = {name: form[name].value() for name in form.fields}
    try:
        requested = request_of(values | {"preemptible": values["preemptible"] in (True, "on")})
        quoted = quote_prediction(project=project, by=by, requested=requested)
    except SlipwayError as error:
        return {"quote": None, "quote_fault": error_text(error)}
    except ValidationError:  # the input is not complete yet
        return {"quote": None, "quote_fault": ""}
    is_refused = not all(budget.would_admit for budget in quoted.quote.budgets)
    return {"quote": quoted.quote, "quoted": quoted, "is_refused": is_refused}
