"""Presenters of notebook servers: labels of states, steps of a start, duration and cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from portal.accounts.models import Project, User
from portal.core import clock
from portal.notebooks.culling import idle_limit_s
from portal.notebooks.models import Server, ServerQuerySet
from portal.notebooks.server_lifecycle import ALIVE
from portal.notebooks.services.queries import cost_of, explanation_of, next_step_of, price_of
from portal.workloads.explanations import Explainer
from portal.workloads.lifecycle import WAITING
from slipway.schemas.notebook_servers import NotebookState

_S = NotebookState
_WORDS = {
    _S.STARTING: ("starting", "strong"),
    _S.OPENING: ("opening", "strong"),
    _S.READY: ("ready", "ok"),
    _S.STOPPING: ("stopping", "warn"),
    _S.STOPPED: ("stopped", ""),
    _S.FAILED: ("failed", "bad"),
}
# Filters of a list, and their states.
GROUPS: dict[str, tuple[str, frozenset[NotebookState]]] = {
    "running": ("Running", ALIVE),
    "stopped": ("Stopped", frozenset({_S.STOPPED})),
    "failed": ("Failed", frozenset({_S.FAILED})),
}
_STEPS = ("Waiting for hardware", "Starting JupyterLab", "Opening the route", "Ready")


@dataclass(frozen=True)
class StartStep:
    """One step of a start: `done`, `now` or `later`."""

    label: str
    state: str


@dataclass(frozen=True)
class ServerStatus:
    """Status of a server. Money in nano-USD. `rate` is the present cost per hour."""

    server: Server
    label: str
    tone: str
    reason: str
    next_step: str
    started_at: datetime
    until: datetime | None
    cost: int
    rate: int
    price: int
    is_mine: bool

    @property
    def has_ended(self) -> bool:
        """True if the server is not running."""
        return self.server.status not in ALIVE

    @property
    def is_active(self) -> bool:
        """True if the server holds hardware, or is about to."""
        return not self.has_ended

    @property
    def is_ready(self) -> bool:
        """True if browsers can open the server."""
        return self.server.status == _S.READY

    @property
    def lasted(self) -> timedelta:
        """Duration of the run, or of the wait so far."""
        return (self.until or clock.now()) - self.started_at

    @property
    def idle_minutes(self) -> int:
        """After how many idle minutes it stops."""
        return round(idle_limit_s(self.server) / 60)

    @property
    def has_shorter_timeout(self) -> bool:
        """True if the idle timeout is shorter than requested, because the server is expensive."""
        return idle_limit_s(self.server) < self.server.idle_after_s

    @property
    def steps(self) -> list[StartStep]:
        """The true steps of its start, while it starts."""
        if self.server.status not in (_S.STARTING, _S.OPENING):
            return []
        at = 0
        workload = self.server.workload
        if self.server.status == _S.OPENING:
            at = 2
        elif workload is not None and workload.status not in WAITING:
            at = 1
        states = ["done" if n < at else "now" if n == at else "later" for n in range(len(_STEPS))]
        return [StartStep(label, state) for label, state in zip(_STEPS, states, strict=True)]


def servers_of(project: Project) -> ServerQuerySet:
    """Return the servers of a project with what a list of them shows."""
    return Server.objects.of_project(project)


def server_status(server: Server, viewer: User) -> ServerStatus:
    """Return the status of one server."""
    return server_statuses([server], viewer)[0]


def server_statuses(servers: Sequence[Server], viewer: User) -> list[ServerStatus]:
    """Return the status of several servers."""
    explainer = Explainer(viewer)
    return [_build_status(server, viewer, explainer) for server in servers]


def _build_status(server: Server, viewer: User, explainer: Explainer) -> ServerStatus:
    label, tone = _WORDS[server.status]
    workload = server.workload
    leases = list(workload.leases.all()) if workload is not None else []
    price = price_of(server)
    return ServerStatus(
        server=server,
        label=label,
        tone=tone,
        reason=explanation_of(server, explainer),
        next_step="" if server.status is _S.READY else next_step_of(server),
        started_at=(workload.started_at or workload.created_at) if workload else server.created_at,
        until=workload.ended_at if workload else server.created_at,
        cost=cost_of(server),
        rate=price if any(lease.is_open for lease in leases) else 0,
        price=price,
        is_mine=server.owner_id == viewer.pk,
    )
