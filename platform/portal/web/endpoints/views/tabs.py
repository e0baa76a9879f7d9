"""Tabs of the page of an endpoint besides its overview and monitoring."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from portal.accounts.gates import gated_role
from portal.accounts.principal import require_principal
from portal.core import clock
from portal.core.policy import guarded_by
from portal.endpoints.gates import gated_endpoint
from portal.endpoints.models import Endpoint, EndpointEvent, Revision
from portal.endpoints.services.queries import endpoint_status, replicas_of, rollouts_of
from portal.endpoints.services.traffic import RANGES, Minute, ready_replicas, traffic_in
from portal.web.base.list_query import search_parameter
from portal.web.base.shortlist import shortlist
from portal.web.endpoints.forms import NewKeyForm, TestRequestForm
from portal.web.endpoints.presenters import (
    current_of,
    example_for,
    replica_lines,
    revisions_of,
    rollout_of,
    snippets_of,
    url_of,
)
from portal.web.endpoints.views.pages import SEE, WHERE, can_roll_back, key_list
from portal.web.workloads.presenters import log_section
from portal.workloads.explanations import Explainer
from slipway.schemas.accounts import Role
from slipway.schemas.endpoints import LimitsIn, RollbackRules

_DEFAULT_RANGE = "24h"
_EVENTS_SHOWN = 200
_LOGS_OFFERED = 12
_COMPARED = 20


def _tab(request: HttpRequest, endpoint: Endpoint, tab: str, **context: Any) -> HttpResponse:
    """Render a tab inside the frame of the endpoint."""
    frame = {
        "endpoint": endpoint,
        "tab": tab,
        "may_run": gated_role(request).at_least(Role.CONTRIBUTOR),
        "may_go_back": can_roll_back(endpoint_status(endpoint)),
    }
    return render(request, f"web/endpoints/{_TEMPLATES[tab]}.html", frame | context | WHERE)


_TEMPLATES = {
    "traffic": "traffic",
    "revisions": "revisions_page",
    "use": "use",
    "keys": "keys_page",
    "logs": "logs",
    "settings": "settings",
}


@guarded_by(SEE)
@require_safe
def project_endpoint_traffic(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Show charts of traffic, latency, errors and replicas in a time range, with their data."""
    endpoint_row = gated_endpoint(request)
    name = _range_name(request, _DEFAULT_RANGE)
    chosen = RANGES[name]
    return _tab(
        request,
        endpoint_row,
        "traffic",
        ranges=[(key, item.label) for key, item in RANGES.items()],
        chosen=name,
        range_label=chosen.label,
        step=_duration(chosen.step_minutes),
        rows=[_row(minute) for minute in reversed(traffic_in(endpoint_row, chosen))],
    )


@guarded_by(SEE)
@require_safe
def project_endpoint_traffic_points(
    request: HttpRequest, project: str, endpoint: str
) -> HttpResponse:
    """Answer with the points of the charts. Times are milliseconds since 1970, rates a second."""
    endpoint_row = gated_endpoint(request)
    chosen = RANGES[_range_name(request, "1h")]
    now = clock.now()
    since = now - timedelta(minutes=chosen.minutes)
    return JsonResponse(
        {
            "since": round(since.timestamp() * 1000),
            "until": round(now.timestamp() * 1000),
            "step": chosen.step_minutes * 60_000,
            "points": [_point(minute) for minute in traffic_in(endpoint_row, chosen)],
            "replicas": [
                [round(at.timestamp() * 1000), count]
                for at, count in ready_replicas(endpoint_row, since)
            ],
        }
    )


def _range_name(request: HttpRequest, default: str) -> str:
    name = search_parameter(request, "range")
    return name if name in RANGES else default


def _duration(minutes: int) -> str:
    number, unit = (minutes, "minute") if minutes < 60 else (minutes // 60, "hour")
    return f"a{'n' if unit == 'hour' else ''} {unit}" if number == 1 else f"{number} {unit}s"


def _point(minute: Minute) -> dict[str, Any]:
    return {
        "at": round(minute.at.timestamp() * 1000),
        "rps": minute.rps,
        "bad": (minute.failed + minute.rejected) / minute.seconds,
        "failed": minute.failed / minute.seconds,
        "rejected": (minute.rejected + minute.refused) / minute.seconds,
        "unauthorized": minute.unauthorized / minute.seconds,
        "p50": minute.percentile_ms(50),
        "p95": minute.percentile_ms(95),
        "p99": minute.percentile_ms(99),
    }


def _row(minute: Minute) -> dict[str, Any]:
    return {
        "at": minute.at,
        "rps": minute.rps,
        "p50": minute.percentile_ms(50),
        "p95": minute.percentile_ms(95),
        "p99": minute.percentile_ms(99),
        "failed": minute.failed,
        "rejected": minute.rejected + minute.refused,
        "unauthorized": minute.unauthorized,
    }


@guarded_by(SEE)
@require_safe
def project_endpoint_revisions(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Show the revisions, what each of them changed, and the events."""
    endpoint_row = gated_endpoint(request)
    status = endpoint_status(endpoint_row)
    last = None if status.rollout else rollouts_of(endpoint_row).first()
    events = EndpointEvent.objects.filter(endpoint=endpoint_row)
    return _tab(
        request,
        endpoint_row,
        "revisions",
        status=status,
        revisions=revisions_of(status),
        rollout=rollout_of(status.rollout) if status.rollout else None,
        last_rollout=rollout_of(last) if last else None,
        changes_between=_changes(list(endpoint_row.revisions.order_by("-number")[:_COMPARED])),
        events=shortlist(events, _EVENTS_SHOWN),
    )


@dataclass(frozen=True)
class RevisionChange:
    """A difference between a revision and the one before it."""

    number: int
    name: str
    before: str
    after: str


def _changes(revisions: list[Revision]) -> list[RevisionChange]:
    """Return the differences of each revision, given from the newest, to the one before it."""
    changes = []
    for after, before in pairwise(revisions):
        new, old = _facts(after), _facts(before)
        changes += [
            RevisionChange(after.number, name, old[name], value)
            for name, value in new.items()
            if old[name] != value
        ]
    return changes


def _facts(revision: Revision) -> dict[str, str]:
    """Return the facts of a revision that are compared, by label."""
    served = revision.served
    signature = revision.signature or {}
    return {
        "Model": f"{revision.model} {revision.model_version}",
        "Format": str(served.get("format") or ""),
        "Files": _digest(served.get("files") or ()),
        "Inputs": str(signature.get("inputs") or ""),
        "Outputs": str(signature.get("outputs") or ""),
        "Python": str(served.get("python") or ""),
        "Packages": " ".join(str(served.get("requirements") or "").split()),
        "Batching": str(served.get("batching") or ""),
        "Golden predictions": str(len(served.get("golden") or ())),
    }


def _digest(files: Sequence[dict[str, Any]]) -> str:
    """Return the number of files, and a digest of their paths and contents."""
    content = "\n".join(sorted(f"{item['path']} {item['sha256']}" for item in files))
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return f"{len(files)} file{'' if len(files) == 1 else 's'}, {digest}"


@guarded_by(SEE)
@require_safe
def project_endpoint_use(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Show a form for a test request, and how to call the endpoint from code."""
    endpoint_row = gated_endpoint(request)
    example = example_for(current_of(endpoint_status(endpoint_row)))
    return _tab(
        request,
        endpoint_row,
        "use",
        trial=TestRequestForm(initial={"request": example}),
        snippets=snippets_of(endpoint_row, example),
        url=url_of(endpoint_row),
    )


@guarded_by(SEE)
@require_safe
def project_endpoint_keys(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """List the keys, with a form for a new one."""
    endpoint_row = gated_endpoint(request)
    return _tab(
        request,
        endpoint_row,
        "keys",
        keys=key_list(endpoint_row),
        key_form=NewKeyForm(),
        now=clock.now(),
    )


@guarded_by(SEE)
@require_safe
def project_endpoint_logs(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Show the log of a replica: the newest one that lives, or the chosen one."""
    endpoint_row = gated_endpoint(request)
    replicas = replicas_of(endpoint_row)
    lines = replica_lines(replicas, Explainer(require_principal(request).user))
    lines.sort(key=lambda line: line.has_ended)
    named = search_parameter(request, "replica")
    chosen = next((line for line in lines if line.row.pk == named), lines[0] if lines else None)
    workload = chosen.row.workload if chosen else None
    log = log_section(workload, request) if workload else {}
    return _tab(request, endpoint_row, "logs", lines=lines[:_LOGS_OFFERED], chosen=chosen, **log)


@guarded_by(SEE)
@require_safe
def project_endpoint_settings(request: HttpRequest, project: str, endpoint: str) -> HttpResponse:
    """Show replicas, limits, rules and capture."""
    endpoint_row = gated_endpoint(request)
    return _tab(
        request,
        endpoint_row,
        "settings",
        limits=LimitsIn.model_validate(endpoint_row.limits),
        rules=RollbackRules.model_validate(endpoint_row.rules),
        warm_price=endpoint_row.tier.price(pool=endpoint_row.pool) * endpoint_row.desired_replicas,
    )
