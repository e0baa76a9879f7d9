"""The audit log: everything one may see, one project's, one team's."""

from collections.abc import Iterable
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from portal.accounts.gates import ProjectRole, SignedIn, TeamRole, gated_project, gated_team
from portal.accounts.models import AuditEvent
from portal.accounts.models.audit import AuditQuerySet
from portal.accounts.principal import require_principal
from portal.compute.models import NodeGroup, Pool
from portal.core.policy import guarded_by
from portal.web.audit.messages import KINDS, VERBS, describe_event, describe_linked
from portal.web.base.list_query import SETTINGS_LAYOUT, Select, day, listing, search_parameter
from slipway.schemas.accounts import Role, Scope

_TEXTS = ("actor", "verb", "target_kind")
_DATES = ("since", "until")


@guarded_by(SignedIn(Scope.AUDIT_READ))
@require_safe
def audit(request: HttpRequest) -> HttpResponse:
    """List the changes that the person may see. Administrators see all."""
    user = require_principal(request).user
    events = AuditEvent.objects.visible_to(user)
    where = {
        "area": "account",
        "section": "audit",
        "layout": SETTINGS_LAYOUT,
        "everything": user.is_administrator,
    }
    return _page(request, events, where)


@guarded_by(ProjectRole(Role.MAINTAINER, Scope.AUDIT_READ))
@require_safe
def project_audit(request: HttpRequest, project: str) -> HttpResponse:
    """The changes in one project."""
    events = AuditEvent.objects.filter(project_id=gated_project(request).pk)
    where = {"area": "projects", "section": "audit", "group": gated_project(request)}
    return _page(request, events, where, project=project)


@guarded_by(TeamRole(Role.MAINTAINER, Scope.AUDIT_READ))
@require_safe
def team_audit(request: HttpRequest, team: str) -> HttpResponse:
    """The changes in one team and its projects."""
    events = AuditEvent.objects.filter(team_id=gated_team(request).pk)
    where = {"area": "teams", "section": "audit", "group": gated_team(request)}
    return _page(request, events, where, team=team)


def _page(
    request: HttpRequest,
    events: AuditQuerySet,
    where: dict[str, Any],
    **confined: str,
) -> HttpResponse:
    since, until = day(request, "since"), day(request, "until", end=True)
    texts = {name: search_parameter(request, name) for name in _TEXTS}
    events_queryset = events.matching(since=since, until=until, **texts)
    dates = {"since": since and since.isoformat(), "until": until and until.isoformat()}
    values_by_name = {name: value for name, value in (texts | confined | dates).items() if value}
    export = reverse("api:export_audit_events")
    selects = (
        Select("verb", "Action", [(verb, _verb_label(verb)) for verb in VERBS], "Any action"),
        Select("target_kind", "Object", list(KINDS.items()), "Any object"),
    )
    shown = listing(request, events_queryset, filters=("actor", *_DATES), selects=selects)
    urls = _target_urls(shown.page.items) if where.get("everything") else {}
    context = {
        "listing": shown,
        "region": "audit",
        "rows": [
            (event, describe_linked(event, url) if url else describe_event(event))
            for event in shown.page.items
            for url in [urls.get(event.target_id)]
        ],
        "csv_url": f"{export}?{urlencode({**values_by_name, 'format': 'csv'})}",
        "jsonl_url": f"{export}?{urlencode({**values_by_name, 'format': 'jsonl'})}",
    }
    return render(request, "web/audit/list.html", context | where)


def _target_urls(events: Iterable[AuditEvent]) -> dict[str, str]:
    """Return the pages of pools and node groups, for administrators. Removed ones have none."""
    pools = {event.target_id for event in events if event.target_kind == "pool"}
    groups = {event.target_id for event in events if event.target_kind == "node_group"}
    urls: dict[str, str] = {}
    if pools:
        names = Pool.objects.present().filter(pk__in=pools).values_list("pk", "name")
        urls |= {pool_id: reverse("pool", args=[name]) for pool_id, name in names}
    if groups:
        rows = NodeGroup.objects.present().filter(pk__in=groups).values_list("pk", "name")
        urls |= {group_id: reverse("node_group", args=[name]) for group_id, name in rows}
    return urls


def _verb_label(verb: str) -> str:
    """Write what was done for people to choose: `endpoint_key.revoke` as `Endpoint key: revoke`."""
    kind, _, done = verb.replace("_", " ").partition(".")
    return f"{kind.capitalize()}: {done.replace('.', ' ')}"
