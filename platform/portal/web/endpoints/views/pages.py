"""Endpoints of a project: the list, one endpoint, its replicas, what it did."""

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, gated_project, gated_role
from portal.accounts.models import User
from portal.accounts.principal import require_principal
from portal.core.errors import Conflict
from portal.core.policy import guarded_by
from portal.endpoints.gates import EndpointRole, gated_endpoint
from portal.endpoints.incidents import recent_incidents
from portal.endpoints.models import Endpoint, EndpointEvent, EndpointKey, Replica
from portal.endpoints.services.queries import (
    EndpointStatus,
    endpoint_status,
    replicas_of,
    rollouts_of,
    summaries_of,
)
from portal.endpoints.services.trial_request import described
from portal.monitoring.notifications import endpoint_alerts
from portal.web.base.list_query import Select, listing, search_parameter
from portal.web.base.shortlist import Shortlist, shortlist
from portal.web.endpoints.presenters import (
    STATES,
    current_of,
    endpoint_rows,
    replica_lines,
    replica_of,
    revisions_of,
    rollout_of,
    state_label,
    state_reason,
)
from portal.web.workloads.presenters import log_section
from portal.workloads.explanations import Explainer
from slipway.schemas.accounts import Role, Scope

SEE = EndpointRole(Role.VIEWER, Scope.WORKLOADS_READ)
CHANGE = EndpointRole(Role.CONTRIBUTOR, Scope.WORKLOADS_WRITE)
WHERE = {"area": "projects", "section": "endpoints"}
EVENTS_SHOWN = 20
INCIDENTS_SHOWN = 20
KEYS_SHOWN = 100
ENDED_SHOWN = 10
_OK = 200


@guarded_by(ProjectRole(Role.VIEWER, Scope.WORKLOADS_READ))
@require_safe
def project_endpoints(request: HttpRequest, project: str) -> HttpResponse:
    """List the endpoints, newest first: what each serves, its traffic now, what an hour costs."""
    endpoints_queryset = Endpoint.objects.of_project(gated_project(request))
    state = request.GET.get("state", "")
    known = state if state in dict(STATES) else ""
    endpoints = endpoints_queryset.matching(text=search_parameter(request, "q"), state=known)
    states = Select("state", "State", [(key, label.capitalize()) for key, label in STATES])
    shown = listing(request, endpoints, sorts={"name": "name"}, selects=(states,))
    rows = endpoint_rows(summaries_of(shown.page.items))
    context = {
        "listing": shown,
        "region": "endpoints",
        "rows": rows,
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
    }
    return render(request, "web/endpoints/list.html", context | WHERE)


@guarded_by(SEE)
@require_safe
def project_endpoint(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Show the overview of an endpoint: status and reason, revisions, traffic, replicas, events."""
    endpoint_row = gated_endpoint(request)
    status = endpoint_status(endpoint_row)
    context = page_of(status, require_principal(request).user) | {
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
        "tab": "overview",
    }
    return render(request, "web/endpoints/endpoint.html", context | WHERE)


def page_of(status: EndpointStatus, viewer: User) -> dict[str, Any]:
    """Collect what the page of an endpoint shows beside its ways in."""
    endpoint = status.endpoint
    replicas = replicas_of(endpoint)
    lines = replica_lines(replicas, Explainer(viewer))
    living = [line for line in lines if not line.has_ended]
    ended = [line for line in lines if line.has_ended][:ENDED_SHOWN]
    rollout = status.rollout
    last = None if rollout else rollouts_of(endpoint).first()
    alerts = endpoint_alerts(endpoint)
    return {
        "endpoint": endpoint,
        "state": state_label(endpoint, ready=status.ready.total()),
        "why": state_reason(endpoint, lines),
        "status": status,
        "alerts": alerts.items,
        "alerts_left_out": alerts.left_out,
        "incidents": shortlist(recent_incidents(endpoint), INCIDENTS_SHOWN),
        "current": current_of(status),
        "revisions": revisions_of(status),
        "rollout": rollout_of(rollout) if rollout else None,
        "last_rollout": rollout_of(last) if last else None,
        "may_go_back": can_roll_back(status),
        "replicas": [*living, *ended],
        "replicas_left_out": Replica.objects.filter(endpoint=endpoint).count()
        - len(living)
        - len(ended),
        "ready": sum(status.ready.values()),
        "changes": any(not line.has_ended and line.row.is_pending for line in lines)
        or bool(rollout),
        "events": shortlist(EndpointEvent.objects.filter(endpoint=endpoint), EVENTS_SHOWN),
    }


def key_list(endpoint: Endpoint) -> Shortlist[EndpointKey]:
    """Return the keys of an endpoint, newest first."""
    keys = EndpointKey.objects.shown().filter(endpoint=endpoint)
    return shortlist(keys.select_related("made_by"), KEYS_SHOWN)


def can_roll_back(status: EndpointStatus) -> bool:
    """Return whether there is a revision to roll back to."""
    if status.endpoint.state != "serving":
        return False
    if status.rollout is not None:
        return status.rollout.previous is not None
    done = rollouts_of(status.endpoint).filter(state="done", previous__isnull=False)
    return done.exclude(previous__state="failed").exists()


@guarded_by(SEE)
@require_safe
def project_endpoint_replica(
    request: HttpRequest, project: str, endpoint: str, replica: str
) -> HttpResponse:
    """Show one replica: its status, cost and log."""
    replica_row = replica_of(gated_endpoint(request), replica)
    (line,) = replica_lines([replica_row], Explainer(require_principal(request).user))
    log = log_section(replica_row.workload, request) if replica_row.workload else {}
    context = {"endpoint": replica_row.endpoint, "it": line} | log
    return render(request, "web/endpoints/replica.html", context | WHERE)


@guarded_by(SEE)
@require_safe
def project_endpoint_openapi(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Answer with the OpenAPI description that the gateway makes from the model's signature."""
    answered = described(endpoint=gated_endpoint(request), by=require_principal(request).user)
    if answered.status != _OK or not isinstance(answered.body, dict):
        raise Conflict(
            "The gateway cannot describe this endpoint at the moment.",
            code="gateway_away",
            next_step="Try again when the endpoint is serving.",
        )
    return JsonResponse(answered.body, json_dumps_params={"indent": 2})
