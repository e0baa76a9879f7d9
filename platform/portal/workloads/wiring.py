"""What makes a scheduler pass worth while, and the tokens of user code."""

from portal.accounts.principal import register_bearer
from portal.compute.signals import NodeChanged, node_changed
from portal.core.doorbell import ring_now
from portal.workloads.signals import LeaseClosed, WorkloadChanged, lease_closed, workload_changed
from portal.workloads.tasks import schedule
from portal.workloads.tokens import PREFIX, principal_behind
from slipway.schemas.workloads import WorkloadState


def _when_queued(news: WorkloadChanged) -> None:
    if news.state == WorkloadState.QUEUED:
        ring_now(schedule)


def _when_room_may_be_free(_news: NodeChanged | LeaseClosed) -> None:
    ring_now(schedule)


workload_changed.connect(_when_queued)
lease_closed.connect(_when_room_may_be_free)
node_changed.connect(_when_room_may_be_free)
register_bearer(PREFIX, principal_behind)
