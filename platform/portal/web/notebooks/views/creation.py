"""Launching a notebook server: the form, what it would cost, whether it would wait."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import ProjectRole, gated_project
from portal.accounts.models import Project, User
from portal.accounts.principal import require_principal
from portal.compute.models import Tier
from portal.core.errors import SlipwayError
from portal.core.policy import guarded_by
from portal.notebooks.models import Server
from portal.notebooks.services.quotes import admission_request, quote_server
from portal.notebooks.services.servers import launch_server
from portal.spend.presenters import with_cost
from portal.web.base.environments import offer_environments
from portal.web.base.form_submission import error_text, sent, status_of, submit_form
from portal.web.base.hardware import default_slug, offer_tiers
from portal.web.base.list_query import search_parameter
from portal.web.base.pools import offer_pools
from portal.web.notebooks.forms.servers import LaunchServer
from portal.web.notebooks.views.servers import opening_page
from slipway.schemas.accounts import Role, Scope
from slipway.schemas.notebook_servers import ServerIn

# Fields that determine the price.
_PRICED = ("name", "tier", "pool", "max_hours", "requirements", "environment")
_RUN = ProjectRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
_WHERE = {"area": "projects", "section": "notebooks"}
_IDLE_MINUTES = 60


@guarded_by(_RUN)
@require_http_methods(["GET", "HEAD", "POST"])
def project_notebook_new(request: HttpRequest, project: str) -> HttpResponse:
    """Choose hardware and limits, see the price, launch."""
    project_row, by = gated_project(request), require_principal(request).user
    offered = list(Tier.objects.offered())
    form = LaunchServer(sent(request), initial=_fresh(project_row, by, offered))
    asks_price = request.POST.get("do") == "quote"
    if not asks_price and (
        done := submit_form(request, form, lambda _: _launch(project_row, by, form))
    ):
        return redirect(opening_page(done.result, search_parameter(request, "file")))
    offer_tiers(form, project_row, offered)
    offer_pools(form, project_row, by)
    offer_environments(form, project_row, automatic="Default: {}")
    context = {
        "form": form,
        **_priced(project_row, by, form),
    }
    status = 200 if asks_price else status_of(form)
    return render(request, "web/notebooks/new.html", context | _WHERE, status=status)


def _fresh(project: Project, by: User, offered: list[Tier]) -> dict[str, Any]:
    taken = set(Server.objects.filter(project=project, owner=by).values_list("name", flat=True))
    names = ("notebook", *(f"notebook-{number}" for number in range(2, 100)))
    return {
        "name": next((name for name in names if name not in taken), "notebook"),
        "tier": default_slug(offered),
        "idle_minutes": _IDLE_MINUTES,
        "environment": "",
    }


def _launch(project: Project, by: User, form: LaunchServer) -> Server:
    assert form.payload is not None  # noqa: S101  (the form is valid)
    return launch_server(project=project, by=by, spec=form.payload)


@guarded_by(_RUN)
@require_POST
def project_notebook_quote(request: HttpRequest, project: str) -> HttpResponse:
    """Quote the server in the form, and whether it would wait. Nothing starts."""
    project_row, by = gated_project(request), require_principal(request).user
    form = LaunchServer(request.POST)
    return render(request, "web/notebooks/quote.html", _priced(project_row, by, form))


def _priced(project: Project, by: User, form: LaunchServer) -> dict[str, Any]:
    """Quote what can be read of the form so far, whatever else is still wrong in it."""
    values_by_name = {name: form[name].value() for name in _PRICED}
    values_by_name = {
        name: value for name, value in values_by_name.items() if value not in (None, "")
    }
    try:
        requested = ServerIn.model_validate(values_by_name)
        quote = with_cost(
            quote_server(project=project, spec=requested),
            admission_request(project=project, by=by, spec=requested),
        )
    except SlipwayError as error:
        return {"quote": None, "quote_fault": error_text(error)}
    except ValueError:  # from the schema: the input is not complete yet
        return {"quote": None, "quote_fault": ""}
    hours = requested.max_hours
    return {
        "quote": quote,
        "is_refused": not all(budget.would_admit for budget in quote.budgets),
        "most_nano_usd": round(quote.nano_usd_per_hour * hours) if hours else None,
    }
