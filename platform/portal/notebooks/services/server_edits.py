"""Changing where a notebook server runs, and when it stops and starts by itself."""

from typing import Any

from django.db import transaction

from portal.accounts import audit
from portal.compute.models import EnvironmentVersion, Pool, Tier
from portal.compute.services.named_environments import resolve_environment
from portal.compute.services.tiers import offered_tier
from portal.core import clock
from portal.core.errors import Conflict
from portal.notebooks.models import Server
from portal.notebooks.server_lifecycle import AT_REST
from portal.notebooks.server_transitions import announce
from portal.notebooks.server_warnings import is_idle_warning, is_schedule_warning
from portal.notebooks.services.servers import lifetime_of, notebook_pool
from portal.workloads.feasibility import refuse_impossible
from slipway.schemas.backends import DEFAULT_BACKEND
from slipway.schemas.notebook_servers import ServerEdit, Weekday

_S_A_MINUTE = 60
_OF_SCHEDULE = frozenset({"daily_start", "daily_stop", "days"})
# Its workload was admitted and priced with these, so they change between two starts.
_OF_A_START = {
    "tier": ("tier", "hardware tier"),
    "pool": ("pool", "pool"),
    "max_lifetime_s": ("max_hours", "maximum lifetime"),
    "environment_version": ("environment", "environment"),
    "requirements": ("environment", "packages"),
}


def edit_server(*, server: Server, spec: ServerEdit) -> Server:
    """Change what is given, from now on: a time that has passed today is not made up for.

    What was warned of by the rules before is taken back, and warned of anew where it still holds.
    Raises InvalidInput for a tier that is not offered or an environment that does not exist, and
    Conflict where the tier, the environment or the longest time of a server that runs would change.
    """
    with transaction.atomic():
        current = Server.objects.select_for_update(of=("self",), no_key=True).get(pk=server.pk)
        requested = _requested_changes(current, spec)
        before = {name: getattr(current, name) for name in requested}
        after = {name: value for name, value in requested.items() if value != before[name]}
        if not after:
            return server
        _require_rest(current, after)
        changes: dict[str, Any] = dict(after)
        if _OF_SCHEDULE & after.keys():
            changes["schedule_seen_at"] = clock.now()
        if is_idle_warning(current.stops_why) or is_schedule_warning(current.stops_why):
            changes |= {"stops_at": None, "stops_why": ""}
        Server.objects.filter(pk=server.pk).update(**changes)
        announce(current)
        audit.record(
            "notebook.edit",
            kind="notebook",
            target=server,
            label=server.name,
            project=server.project,
            before={name: _audit_value(before[name]) for name in after},
            after={name: _audit_value(value) for name, value in after.items()},
        )
    return server


def _require_rest(server: Server, after: dict[str, Any]) -> None:
    for column, (field, words) in _OF_A_START.items():
        if column in after and server.status not in AT_REST:
            raise Conflict(
                f"The {words} of {server.name} cannot change while the server is {server.state}.",
                code="server_runs",
                field=field,
                next_step="Stop it first, change it, then start it again.",
            )
    if "tier" in after or "pool" in after:
        refuse_impossible(
            project=server.project,
            tier=after.get("tier", server.tier),
            tasks=1,
            backend=DEFAULT_BACKEND,
            pool=after.get("pool", server.pool),
        )


def _audit_value(value: Any) -> Any:
    if isinstance(value, EnvironmentVersion):
        return value.reference
    if isinstance(value, Pool):
        return value.name
    return value.slug if isinstance(value, Tier) else value


def _requested_changes(server: Server, server_edit: ServerEdit) -> dict[str, Any]:
    values_by_name: dict[str, Any] = {
        "daily_start": server_edit.daily_start,
        "daily_stop": server_edit.daily_stop,
    }
    if server_edit.idle_minutes is not None:
        values_by_name["idle_after_s"] = server_edit.idle_minutes * _S_A_MINUTE
    if server_edit.days is not None:
        values_by_name["days"] = [day.value for day in Weekday if day in server_edit.days]
    values_by_name = {name: value for name, value in values_by_name.items() if value is not None}
    if server_edit.tier is not None and server_edit.tier != server.tier.slug:
        values_by_name["tier"] = offered_tier(server_edit.tier)
    if server_edit.pool is not None and server_edit.pool != (server.pool and server.pool.name):
        pool = notebook_pool(server.project, server.owner, server_edit.pool or None)
        values_by_name["pool"] = pool
    if server_edit.max_hours is not None:
        values_by_name["max_lifetime_s"] = lifetime_of(server_edit)
    if server_edit.environment is not None:
        values_by_name["environment_version"] = resolve_environment(
            project=server.project, reference=server_edit.environment
        )
        values_by_name["requirements"] = ""
    return values_by_name
