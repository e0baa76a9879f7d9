"""Machines and workloads for tests: nodes that join and beat through the agent API's services."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import orjson
from django.http import HttpResponse
from django.test import Client

from portal.accounts.models import Project, User
from portal.compute.models import Node, Tier
from portal.compute.resources import GIB, Amount
from portal.compute.services.node_registration import create_join_token, join_node
from portal.compute.services.tiers import create_tier
from portal.core import clock
from portal.training.presentation import PRESENTATION
from portal.workloads import ports
from portal.workloads.models import Lease, Workload
from portal.workloads.ports import Grouping, Kind, register_kind
from portal.workloads.retries import RetryRule
from portal.workloads.services.heartbeats import heartbeat
from portal.workloads.services.reports import accept_reports
from portal.workloads.services.submission import WorkloadRequest, submit_workload
from portal.workloads.specs import spec_from
from slipway.schemas.agent import (
    GpuFacts,
    Heartbeat,
    HeartbeatAnswer,
    IsolationFacts,
    NodeFacts,
    ReportsAnswer,
    TaskKey,
    TaskReport,
)
from slipway.schemas.workloads import Resources

JOB = Kind(
    "job",
    "job",
    retry=RetryRule(max_attempts=3),
    moves_when_drained=True,
    can_be_preempted=True,
    warm="torch",
    grouping=Grouping(noun="experiment"),
    presentation=PRESENTATION,
    reports_silence=True,
)
NOTEBOOK = Kind("notebook", "notebook", warm="jupyterlab")
REPLICA = Kind("replica", "replica", keeps_on_fence=True)
APART = {"level": "namespaces", "features": ["user", "mount", "pid", "ipc", "network"]}
_numbers = count(1)


def register_kinds() -> None:
    """Make the three kinds known, as the rooms above will."""
    for kind in (JOB, NOTEBOOK, REPLICA):
        register_kind(kind)


@contextmanager
def stand_in_kinds() -> Iterator[None]:
    """Register the three kinds, and afterwards leave the kinds of this process as they were."""
    registry = ports._registry
    before, registry.kinds = registry.kinds, dict(registry.kinds)
    register_kinds()
    try:
        yield
    finally:
        registry.kinds = before


def facts(
    *,
    cpus: float = 4,
    gib: float = 16,
    gpus: int = 0,
    gpu_model: str = "H100",
    labels: dict[str, str] | None = None,
    backends: tuple[str, ...] = ("process",),
    isolation: Iterable[IsolationFacts] | None = None,
    pythons: tuple[str, ...] = (),
) -> NodeFacts:
    """Describe a machine; unless told otherwise, one that keeps projects apart."""
    if isolation is None:
        isolation = [IsolationFacts.model_validate({"backend": b, **APART}) for b in backends]
    return NodeFacts(
        capacity=Resources(cpu_millis=int(cpus * 1000), memory_bytes=int(gib * GIB), gpus=gpus),
        gpus=[GpuFacts(index=i, model=gpu_model, memory_bytes=80 * GIB) for i in range(gpus)],
        backends=list(backends),
        address="127.0.0.1",
        labels=labels or {},
        agent_version="test",
        isolation=list(isolation),
        pythons=list(pythons),
    )


@dataclass
class Machine:
    """A node and its token; `beat` makes it heard."""

    node: Node
    secret: str
    facts: NodeFacts
    running: set[tuple[str, int]] = field(default_factory=set)

    def beat(self, **changes: Any) -> HeartbeatAnswer:
        """Send a heartbeat that lists what is running."""
        body: dict[str, Any] = {
            "boot_id": "boot-1",
            "facts": self.facts,
            "cpu_percent": 1.0,
            "memory_used_bytes": GIB,
            "running": [TaskKey(task_id=task, epoch=epoch) for task, epoch in self.running],
        }
        self.node.refresh_from_db()
        return heartbeat(node=self.node, beat=Heartbeat(**(body | changes)))

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> HttpResponse:
        """Send one request to the agent API with the node's token."""
        kind = options.pop("content_type", "application/json")
        data = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        headers = {"Authorization": f"Bearer {self.secret}"} | options
        answer: Any = Client().generic(
            method, f"/api/agent/v1/{path}", data, content_type=kind, headers=headers
        )
        response: HttpResponse = answer
        return response


def make_machine(name: str = "", **changes: Any) -> Machine:
    """Join a machine and let it beat once."""
    details = facts(**changes)
    name = name or f"node-{next(_numbers)}"
    token = create_join_token(by=None)
    joined = join_node(secret=token.secret, name=name, details=details)
    machine = Machine(joined.node, joined.secret, details)
    machine.beat()
    return machine


def make_tier(
    slug: str = "small", *, cpus: float = 1, gib: float = 1, gpus: int = 0, **changes: Any
) -> Tier:
    """Make a tier."""
    amount = Amount(int(cpus * 1000), int(gib * GIB), gpus)
    made: dict[str, Any] = {"name": slug, "slug": slug, "nano_usd_per_hour": 1_000_000} | changes
    return create_tier(amount=amount, **made)


def submit(project: Project, by: User, tier: Tier, **changes: Any) -> Workload:
    """Submit a job named after how many there were."""
    fields: dict[str, Any] = {
        "kind": "job",
        "name": f"job {next(_numbers)}",
        "tier": tier,
        "spec": spec_from(argv=("python", "train.py")),
    } | changes
    return submit_workload(project=project, by=by, spec=WorkloadRequest(**fields))


def leases_of(workload: Workload) -> list[Lease]:
    """Return the leases of the present epoch, in the order of their tasks."""
    workload.refresh_from_db()
    return list(Lease.objects.of_epoch(workload).select_related("node").order_by("index"))


def unix_ms(at: datetime | None = None) -> int:
    """Return a moment as agents write it."""
    return int((at or clock.now()).timestamp() * 1000)


def report_of(lease: Lease, kind: str, sequence: int = 1, **changes: Any) -> dict[str, Any]:
    """Return a report on a task as JSON."""
    return {
        "task_id": lease.task_id,
        "epoch": lease.epoch,
        "sequence": sequence,
        "kind": kind,
        "at_unix_ms": unix_ms(),
    } | changes


def after(seconds: float) -> datetime:
    """Return a moment that many seconds from now."""
    return clock.now() + timedelta(seconds=seconds)


def send_report(
    lease: Lease, kind: str, sequence: int = 1, *, sent: datetime | None = None, **changes: Any
) -> ReportsAnswer:
    """Let the lease's node report on a task; `sent` is what its clock shows."""
    report = TaskReport.model_validate(report_of(lease, kind, sequence, **changes))
    return accept_reports(node=lease.node, reports=[report], sent_unix_ms=unix_ms(sent))


def run(workload: Workload) -> None:
    """Let the nodes report that every task runs."""
    for lease in leases_of(workload):
        send_report(lease, "starting", 1)
        send_report(lease, "running", 2)
    workload.refresh_from_db()


def finish(workload: Workload, reason: str = "completed", **changes: Any) -> None:
    """Let the nodes report the end of every task."""
    for lease in leases_of(workload):
        send_report(lease, "ended", 9, reason=reason, **changes)
    workload.refresh_from_db()


def state_of(workload: Workload) -> str:
    """Return the present state."""
    workload.refresh_from_db()
    return workload.state


def states_of(*workloads: Workload) -> list[str]:
    """Return the present states."""
    return [state_of(workload) for workload in workloads]
