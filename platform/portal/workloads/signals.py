"""Signals of this app, sent on commit."""

from dataclasses import dataclass

from portal.core.events import DomainSignal
from slipway.schemas.workloads import ReasonCode, WorkloadState


@dataclass(frozen=True)
class WorkloadChanged:
    """A workload moved to another state. `reason` is set when it ended or was requeued."""

    workload_id: str
    project_id: str
    kind: str
    state: WorkloadState
    epoch: int
    reason: ReasonCode | None = None


@dataclass(frozen=True)
class LeaseClosed:
    """A task gave its resources back."""

    lease_id: str
    workload_id: str
    project_id: str


workload_changed: DomainSignal[WorkloadChanged] = DomainSignal("workload_changed")
lease_closed: DomainSignal[LeaseClosed] = DomainSignal("lease_closed")
