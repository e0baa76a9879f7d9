"""Actions on an endpoint: promote, roll back, pause, change, delete, try it."""

import json

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from portal.accounts.gates import gated_project
from portal.accounts.principal import require_principal
from portal.core.errors import NotFound
from portal.core.policy import guarded_by
from portal.endpoints.gates import gated_endpoint
from portal.endpoints.models import Endpoint, Revision
from portal.endpoints.services.endpoints import (
    change_endpoint,
    delete_endpoint,
    pause_endpoint,
    resume_endpoint,
)
from portal.endpoints.services.promotions import promote, roll_back
from portal.endpoints.services.queries import endpoint_status
from portal.endpoints.services.trial_request import try_out
from portal.registry.catalog import list_models
from portal.web.base.confirmation import Confirmation, show_confirmation
from portal.web.base.environments import MODEL_PACKAGES, offer_environments
from portal.web.base.form_submission import one_click, sent, status_of, submit_form
from portal.web.base.list_query import search_parameter
from portal.web.base.urls_for import address_of
from portal.web.endpoints.forms import ChangedEndpoint, NewRollout, ReasonForm, TestRequestForm
from portal.web.endpoints.presenters import current_of, version_choices
from portal.web.endpoints.views.pages import CHANGE, WHERE
from portal.workloads.placement import Capacity
from portal.workloads.scheduling import free_task_slots, read_sites
from slipway.schemas.endpoints import LimitsIn, Promote, RollbackRules
from slipway.schemas.truncation import shorten

_MIB = 1024**2
_OK = 200
_MOST_SHOWN = 100_000
_MOST_NUMBER = 2**31 - 1


def _endpoint_url(endpoint: Endpoint) -> str:
    return address_of(endpoint.project, "endpoint", endpoint.name)


@guarded_by(CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_endpoint_promote(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Show what a promotion would change and cost, and do it by the chosen plan."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    deployed = endpoint_status(endpoint_row)
    newest = current_of(deployed)
    current = newest if newest is not None and newest.weight else None
    given = {
        "model": search_parameter(request, "model") or (newest.model if newest else ""),
        "version": search_parameter(request, "version"),
        "environment": _environment_of(newest),
    }
    form = NewRollout(sent(request), initial=given)
    if current is None:
        form.offer_all_at_once()
    done = submit_form(
        request, form, lambda _: promote(endpoint=endpoint_row, by=by, spec=form.payload)
    )
    if done:
        number = done.result.revision.number
        messages.success(
            request, f"Revision {number} is starting; traffic will shift according to the plan."
        )
        return redirect(_endpoint_url(endpoint_row))
    offer_environments(form, endpoint_row.project, automatic=MODEL_PACKAGES, installation=False)
    rate = endpoint_row.tier.price(pool=endpoint_row.pool)
    context = {
        "endpoint": endpoint_row,
        "form": form,
        "current": current,
        "terminal_plan": "canary" if current else "all_at_once",
        "rollout": deployed.rollout,
        "models": [item.name for item in list_models(endpoint_row.project_id, limit=100).items],
        "versions": version_choices(endpoint_row.project, str(form["model"].value() or "")),
        "free": free_task_slots(Capacity(read_sites()), endpoint_row.project, endpoint_row.tier),
        "now_an_hour": deployed.nano_usd_per_hour,
        "then_an_hour": deployed.nano_usd_per_hour + rate * endpoint_row.desired_replicas,
    }
    status = status_of(form)
    return render(request, "web/endpoints/promote.html", context | WHERE, status=status)


def _environment_of(revision: Revision | None) -> str:
    """Return the environment to choose first: the latest version of that of the revision."""
    if revision is None or revision.environment_version is None:
        return ""
    named = revision.environment_version.named
    return named.name if named.archived_at is None else ""


@guarded_by(CHANGE)
@require_POST
def project_endpoint_return(
    request: HttpRequest, project: str, endpoint: str, number: int
) -> HttpResponse:
    """Promote an earlier revision again, all at once."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    if number > _MOST_NUMBER or not endpoint_row.revisions.filter(number=number).exists():
        raise NotFound
    requested = Promote(revision=number)
    if one_click(request, lambda: promote(endpoint=endpoint_row, by=by, spec=requested)):
        messages.success(request, f"Revision {number} is starting again.")
    return redirect(_endpoint_url(endpoint_row))


@guarded_by(CHANGE)
@require_POST
def project_endpoint_rollback(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Roll back to the previous revision."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    if one_click(request, lambda: roll_back(endpoint=endpoint_row, by=by)):
        messages.success(request, "Rolling back to the previous revision.")
    return redirect(_endpoint_url(endpoint_row))


@guarded_by(CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_endpoint_pause(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Ask for the reason, then pause."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    form = ReasonForm(sent(request))
    done = submit_form(
        request,
        form,
        lambda data: pause_endpoint(endpoint=endpoint_row, by=by, reason=data["reason"]),
    )
    if done:
        messages.success(request, f"{endpoint_row.name} paused.")
        return redirect(_endpoint_url(endpoint_row))
    question = Confirmation(
        title=f"Pause {endpoint_row.name}?",
        effects=(
            "Requests get 503 with the reason until somebody resumes the endpoint.",
            "Its replicas stop, so it costs nothing. Resuming takes as long as a start.",
        ),
        button="Pause the endpoint",
        back=_endpoint_url(endpoint_row),
        area="projects",
        section="endpoints",
    )
    return show_confirmation(request, question, form)


@guarded_by(CHANGE)
@require_POST
def project_endpoint_resume(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Serve again."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    if one_click(request, lambda: resume_endpoint(endpoint=endpoint_row, by=by)):
        messages.success(request, f"{endpoint_row.name} is starting its replicas again.")
    return redirect(_endpoint_url(endpoint_row))


@guarded_by(CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_endpoint_delete(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Ask, then delete."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    if request.method == "POST":
        if one_click(request, lambda: delete_endpoint(endpoint=endpoint_row, by=by)):
            messages.success(
                request, f"{endpoint_row.name} is being deleted; open requests are completed first."
            )
        return redirect("project_endpoints", gated_project(request).slug)
    effects = (
        f"{endpoint_row.name} immediately refuses all requests; its keys stop working.",
        "Its replicas complete open requests and stop; after that it costs nothing.",
        "The model, the captured predictions and past costs are retained.",
    )
    question = Confirmation(
        title=f"Delete {endpoint_row.name}?",
        effects=effects,
        button="Delete the endpoint",
        back=_endpoint_url(endpoint_row),
        area="projects",
        section="endpoints",
    )
    return show_confirmation(request, question)


@guarded_by(CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_endpoint_change(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Change replicas, limits, rules of rollback and recording while it serves."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    form = ChangedEndpoint(sent(request), initial=_form_initial(endpoint_row))
    done = submit_form(
        request, form, lambda _: change_endpoint(endpoint=endpoint_row, by=by, change=form.payload)
    )
    if done:
        messages.success(request, "The change takes effect within seconds.")
        return redirect(_endpoint_url(endpoint_row))
    context = {"endpoint": endpoint_row, "form": form}
    status = status_of(form)
    return render(request, "web/endpoints/change.html", context | WHERE, status=status)


def _form_initial(endpoint: Endpoint) -> dict[str, object]:
    """Return the initial values of the form that changes the endpoint."""
    limits = LimitsIn.model_validate(endpoint.limits)
    rules = RollbackRules.model_validate(endpoint.rules)
    return {
        "min_replicas": endpoint.min_replicas,
        "max_replicas": endpoint.max_replicas,
        "target_concurrency": endpoint.target_concurrency,
        "target_queue_ms": endpoint.target_queue_ms,
        "warm_minutes": endpoint.warm_minutes,
        "fallback": endpoint.fallback,
        "max_body_mib": limits.max_body_bytes / _MIB,
        "max_in_flight": limits.max_in_flight,
        "timeout_s": limits.timeout_s,
        "rate_per_s": limits.rate.per_s if limits.rate else None,
        "burst": limits.rate.burst if limits.rate else None,
        "capture": endpoint.capture,
        **rules.model_dump(),
    }


@guarded_by(CHANGE)
@require_http_methods(["GET", "HEAD", "POST"])
def project_endpoint_try(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Send a request through the gateway and show what came back."""
    endpoint_row, by = gated_endpoint(request), require_principal(request).user
    form = TestRequestForm(sent(request))
    done = submit_form(
        request, form, lambda _: try_out(endpoint=endpoint_row, by=by, body=form.payload.request)
    )
    context: dict[str, object] = {
        "endpoint": endpoint_row,
        "trial": form,
        "tab": "use",
        "may_run": True,
    }
    if done:
        answered = done.result
        body = json.dumps(answered.body, indent=2, ensure_ascii=False)
        context |= {
            "answered": answered,
            "is_good": answered.status == _OK,
            "body": shorten(body, _MOST_SHOWN),
        }
    # htmx swaps in a fragment only if the status is a success.
    is_part = request.headers.get("HX-Request") == "true"
    status = 200 if is_part else status_of(form)
    return render(request, "web/endpoints/try.html", context | WHERE, status=status)
