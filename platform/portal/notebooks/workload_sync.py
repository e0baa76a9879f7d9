"""Servers follow their workloads: how those end, wait and run again is decided below."""

from typing import Any

from django.db import transaction

from portal.core import clock
from portal.notebooks.kinds import KIND
from portal.notebooks.models import Server
from portal.notebooks.server_lifecycle import AT_REST
from portal.notebooks.server_transitions import announce, move_server
from portal.workloads.lifecycle import ACTIVE, ENDS, WAITING
from portal.workloads.models import Workload
from slipway.schemas.notebook_servers import NotebookState
from slipway.schemas.workloads import WorkloadState

_RAN = frozenset({NotebookState.OPENING, NotebookState.READY})
_SHUT_DOWN = "Shut down from JupyterLab."


def sync_server(workload_id: str) -> None:
    """Sync the state of a workload to its server. Idempotent."""
    with transaction.atomic():
        servers = Server.objects.filter(workload=workload_id)
        server = (
            servers.select_for_update(of=("self",), no_key=True).select_related("workload").first()
        )
        if server is not None and server.workload is not None:
            _follow(server, server.workload)


def sync_all() -> None:
    """Sync with workloads whose notifications were lost."""
    alive = Server.objects.alive().values_list("workload_id", "state", "workload__state")
    for workload_id, state, workload_state in alive:
        status = WorkloadState(workload_state)
        behind = status in ENDS or (status in WAITING and state != NotebookState.STARTING)
        if behind or (status == WorkloadState.STOPPING and state != NotebookState.STOPPING):
            sync_server(workload_id)
    resumed = Server.objects.filter(
        state__in=[state.value for state in AT_REST],
        workload__state__in=[state.value for state in (*ACTIVE, *WAITING)],
    )
    for workload_id in resumed.values_list("workload_id", flat=True):
        sync_server(str(workload_id))


def _follow(server: Server, workload: Workload) -> None:
    status = workload.status
    if status in ENDS:
        _end(server, workload)
    elif status == WorkloadState.STOPPING:
        move_server(server, NotebookState.STOPPING, reason=workload.reason_text)
    elif server.status in AT_REST or (server.status in _RAN and status in WAITING):
        move_server(server, NotebookState.STARTING, **_initial_values())
    else:
        announce(server)  # the steps of a start are those of its workload


def _initial_values() -> dict[str, Any]:
    return {"reason": "", "next_step": "", "address": "", "stops_at": None, "stops_why": ""}


def _end(server: Server, workload: Workload) -> None:
    well = workload.status in (WorkloadState.SUCCEEDED, WorkloadState.STOPPED)
    reason = workload.reason_text or "Its process has ended."
    if workload.status == WorkloadState.SUCCEEDED:
        reason = _SHUT_DOWN
    move_server(
        server,
        NotebookState.STOPPED if well else NotebookState.FAILED,
        reason=reason,
        next_step="" if well else _next_step(workload),
        address="",
        why_alive="",
        stops_at=None,
        stops_why="",
        active_at=server.active_at or clock.now(),
    )


def _next_step(workload: Workload) -> str:
    return workload.next_step or "Start it again; saved files are still there."


def is_notebook_server(kind: str) -> bool:
    """Return True if this kind of workload is a notebook server."""
    return kind == KIND
