"""Heartbeats of nodes: they renew the leases of what runs, and fence what must not."""

from django.db import transaction

from portal.compute.lifecycle import FENCE_S, HEARTBEAT_S, LEASE
from portal.compute.models import Node
from portal.compute.services.nodes import note_heartbeat
from portal.core import clock
from portal.workloads.lifecycle import LeaseState
from portal.workloads.models import Lease
from slipway.schemas.agent import Heartbeat, HeartbeatAnswer, TaskKey


def heartbeat(*, node: Node, beat: Heartbeat) -> HeartbeatAnswer:
    """Renew the leases of what the node runs, and of what it is about to start.

    A lease whose task had started but is no longer among `running` is not renewed: unless its end
    is reported it runs out, and the task counts as lost. What runs without a lease comes back in
    `fenced`.
    """
    running = {(key.task_id, key.epoch) for key in beat.running}
    with transaction.atomic():
        leases = list(
            Lease.objects.open()
            .filter(node=node)
            .select_for_update(of=("self",), no_key=True)
            .order_by("pk")
        )
        held = {(lease.task_id, lease.epoch): lease for lease in leases}
        renewed = [
            lease.pk
            for key, lease in held.items()
            if key in running or lease.state == LeaseState.GRANTED
        ]
        fresh = clock.now() + LEASE
        Lease.objects.open().filter(pk__in=renewed).update(expires_at=fresh)
        note_heartbeat(node=node, beat=beat)
    return HeartbeatAnswer(
        heartbeat_s=HEARTBEAT_S,
        lease_s=FENCE_S,
        fenced=[TaskKey(task_id=task, epoch=epoch) for task, epoch in sorted(running - set(held))],
    )
