"""Queries on a server: cost, progress, and the reason for its state."""

from portal.core import clock
from portal.notebooks.hub_tokens import server_token
from portal.notebooks.models import Server
from portal.notebooks.server_lifecycle import ALIVE, AT_REST
from portal.notebooks.services.opening_status import describe_opening, step_of_opening
from portal.notebooks.urls import start_of
from portal.workloads.costs import (
    price_at,
    steps_of_tier,
    unix_ms,
    workload_cost,
    workload_price,
)
from portal.workloads.explanations import Explainer
from portal.workloads.lifecycle import ACTIVE
from portal.workloads.models import Workload
from slipway.schemas.money import charged
from slipway.schemas.notebook_servers import HubServer, NotebookState
from slipway.schemas.workloads import WorkloadState

_PROGRESS = {
    WorkloadState.SUBMITTED: 5,
    WorkloadState.ADMITTED: 8,
    WorkloadState.QUEUED: 10,
    WorkloadState.PLACED: 30,
    WorkloadState.STARTING: 45,
    WorkloadState.RUNNING: 60,
}
_OPENING, _READY = 85, 100


def cost_of(server: Server) -> int:
    """Return what all starts of a server have cost so far, to the millisecond, in nano-USD."""
    until_ms = unix_ms(clock.now())
    return sum(workload_cost(run.workload, until_ms=until_ms) for run in server.runs.all())


def price_of(server: Server) -> int:
    """Return nano-USD an hour: what it costs now, or would cost if it were started."""
    workload = server.workload
    if server.pool is not None and workload is not None and workload.status in ACTIVE:
        return workload_price(workload)
    steps = steps_of_tier(server.tier)
    price = price_at(steps, unix_ms(clock.now())) if steps else server.tier.nano_usd_per_hour
    return price if server.pool is None else charged(price, percent=server.pool.price_percent)


def explanation_of(server: Server, explainer: Explainer) -> str:
    """Return the state of a server in a sentence, with what it waits for."""
    if server.status in AT_REST:
        return server.reason or "It has not been started yet."
    if server.workload is None:
        return "It has not been started yet."
    if server.status == NotebookState.OPENING:
        return describe_opening(server)
    if server.status == NotebookState.READY:
        return f"Ready. {explainer.explain(server.workload)}"
    return explainer.explain(server.workload)


def next_step_of(server: Server) -> str:
    """Return what to do about the state of a server, empty if there is nothing."""
    return server.next_step or step_of_opening(server)


def hub_view(server: Server) -> HubServer:
    """Return a server as the Hub knows it."""
    workload = server.workload
    if workload is None or server.status not in ALIVE:
        return HubServer(
            id=server.pk,
            user=server.owner_id,
            state=server.status,
            progress=0,
            message=server.reason,
        )
    return HubServer(
        id=server.pk,
        user=server.owner_id,
        state=server.status,
        start=start_of(workload),
        progress=_progress(server, workload),
        message=explanation_of(server, Explainer(server.owner)),
        address=server.address or None,
        token=server_token(workload.pk, workload.epoch),
    )


def _progress(server: Server, workload: Workload) -> int:
    if server.status == NotebookState.READY:
        return _READY
    if server.status == NotebookState.OPENING:
        return _OPENING
    return _PROGRESS.get(workload.status, 0)
