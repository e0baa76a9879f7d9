"""When a notebook server stops by itself: nothing works in it, and for how long. Dear ones sooner.

An open browser tab is no work. A busy kernel, a terminal that moved, a saved file, and processes
that use the processor or the network are. A server in which a kernel is busy is never stopped.
"""

from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from portal.accounts.models.tenancy import role_in
from portal.core import clock
from portal.notebooks.models import Server
from portal.notebooks.server_transitions import announce
from portal.notebooks.server_warnings import IDLE, LIFETIME_ENDS
from portal.notebooks.services.servers import stop_server
from portal.workloads.models import UsageSample
from slipway.schemas.accounts import Role
from slipway.schemas.notebook_servers import NotebookState
from slipway.schemas.truncation import shorten
from slipway.schemas.workloads import ReasonCode

WARNING = timedelta(seconds=60)
_END_WARNING = timedelta(minutes=5)
_LEAST_S = 300
_NANO_USD = 10**9
_GPU_BUSY_PERCENT = 5.0
_GPU_WINDOW = timedelta(seconds=90)


def idle_limit_s(server: Server) -> float:
    """Return the idle seconds in force: divided by the dollars an hour above one, at least 300."""
    dollars = server.tier.nano_usd_per_hour / _NANO_USD
    return max(min(server.idle_after_s, _LEAST_S), server.idle_after_s / max(1.0, dollars))


def cull_idle_servers() -> None:
    """Warn servers that are about to stop, stop those that were warned, and clear old warnings."""
    timestamp = clock.now()
    ready = Server.objects.filter(state=NotebookState.READY, active_at__isnull=False)
    for server in ready.select_related("tier", "workload", "project", "owner"):
        if not has_active_owner(server):
            stop_server(server=server, message=f"{server.owner.display_name} left the project.")
        elif _gpu_is_busy(server, timestamp):
            note_activity(server, timestamp, "a GPU is in use")
        else:
            _warn_or_stop(server, timestamp)
        ends_at = server.workload.deadline_at if server.workload is not None else None
        if ends_at is not None:
            warn_of_end(server, timestamp, ends_at, LIFETIME_ENDS)


def has_active_owner(server: Server) -> bool:
    """Return True if the owner is active and still at least a contributor in the project."""
    role = role_in(server.owner, server.project)
    return server.owner.is_active and role is not None and role.at_least(Role.CONTRIBUTOR)


def _gpu_is_busy(server: Server, timestamp: datetime) -> bool:
    if server.workload is None or not server.workload.gpus:
        return False
    recent = UsageSample.objects.filter(
        lease__workload=server.workload_id,
        at__gte=timestamp - _GPU_WINDOW,
        gpu_percent__gte=_GPU_BUSY_PERCENT,
    )
    return recent.exists()


def _warn_or_stop(server: Server, timestamp: datetime) -> None:
    assert server.active_at is not None  # noqa: S101  (the caller's filter)
    due = server.active_at + timedelta(seconds=idle_limit_s(server))
    minutes = round(idle_limit_s(server) / 60)
    why = f"{IDLE} {minutes} minute{'' if minutes == 1 else 's'}."
    if timestamp < due - WARNING:
        return
    if server.stops_at is None:
        _warn(server, max(due, timestamp + WARNING), why)
    elif server.stops_at <= timestamp and server.stops_why == why:
        stop_server(server=server, reason=ReasonCode.IDLE, message=why)


def _warn(server: Server, stops_at: datetime, why: str) -> None:
    with transaction.atomic():
        same = Server.objects.filter(pk=server.pk, stops_at=None, active_at=server.active_at)
        if same.update(stops_at=stops_at, stops_why=why):
            announce(server)


def warn_of_end(server: Server, timestamp: datetime, ends_at: datetime, why: str) -> None:
    """Warn a few minutes ahead that a server will be stopped, whatever stops it."""
    if not timestamp < ends_at <= timestamp + _END_WARNING:
        return
    with transaction.atomic():
        later = Q(stops_at=None) | Q(stops_at__gt=ends_at)
        same = Server.objects.filter(later, pk=server.pk, state=NotebookState.READY)
        if same.update(stops_at=ends_at, stops_why=why):
            announce(server)


def note_activity(server: Server, timestamp: datetime, why: str) -> None:
    """Something works in a server: it lives on, and a warning that it would stop is taken back."""
    Server.objects.filter(pk=server.pk, state=NotebookState.READY).update(
        active_at=timestamp, why_alive=shorten(why, 300)
    )
    idle_warnings = Server.objects.filter(pk=server.pk, stops_why__startswith=IDLE)
    if idle_warnings.update(stops_at=None, stops_why=""):
        announce(server)


def warn_of_budget(*, workload_id: str, stops_at: datetime, why: str) -> None:
    """Warn the users of a server that its budget will stop it. Idempotent."""
    server = Server.objects.alive().filter(workload=workload_id).first()
    if server is None:
        return
    with transaction.atomic():
        changed = Server.objects.filter(pk=server.pk).exclude(stops_at=stops_at)
        if changed.update(stops_at=stops_at, stops_why=shorten(why, 300)):
            announce(server)
