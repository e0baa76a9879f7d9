"""Reading how an endpoint stands: its revisions, the rollout under way, replicas, cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from portal.endpoints.lifecycle import KEPT, ReplicaState
from portal.endpoints.models import Endpoint, Replica, Revision, Rollout
from portal.endpoints.models.rollouts import RolloutQuerySet
from portal.endpoints.replicas import wanted_of
from portal.workloads.lifecycle import ACTIVE
from portal.workloads.models import Lease

_SHOWN_REVISIONS = 20


@dataclass(frozen=True)
class Standing:
    """How an endpoint stands now. `ready` counts ready replicas by revision."""

    endpoint: Endpoint
    revisions: Sequence[Revision]
    rollout: Rollout | None
    ready: Counter[str]
    nano_usd_per_hour: int

    def wanted(self, revision: Revision) -> int:
        """Return how many replicas a revision should have."""
        return wanted_of(self.endpoint, revision)


def standing_of(endpoint: Endpoint) -> Standing:
    """Return how an endpoint stands: its newest revisions and those that are warm."""
    mine = endpoint.revisions.select_related("made_by").defer("served")
    newest = mine.order_by("-number")[:_SHOWN_REVISIONS]
    warm = mine.filter(state__in=[state.value for state in KEPT])
    revisions = {revision.pk: revision for revision in [*newest, *warm]}
    alive = Replica.objects.alive().filter(endpoint=endpoint)
    running = alive.filter(workload__state__in=[state.value for state in ACTIVE])
    ready = alive.filter(state=ReplicaState.READY).values_list("revision_id", flat=True)
    return Standing(
        endpoint=endpoint,
        revisions=sorted(revisions.values(), key=lambda revision: -revision.number),
        rollout=rollouts_of(endpoint).under_way().first(),
        ready=Counter(ready),
        nano_usd_per_hour=endpoint.tier.nano_usd_per_hour * running.count(),
    )


def rollouts_of(endpoint: Endpoint) -> RolloutQuerySet:
    """Return the rollouts of an endpoint, newest first, with what answers need."""
    found = Rollout.objects.filter(endpoint=endpoint).order_by("-pk")
    return found.select_related("revision", "previous", "made_by")


def replicas_of(endpoint: Endpoint) -> Sequence[Replica]:
    """Return the replicas of an endpoint that live or ended lately, newest first."""
    found = Replica.objects.filter(endpoint=endpoint).select_related("revision", "workload")
    return list(found.order_by("-pk")[:100])


def nodes_of(replicas: Sequence[Replica]) -> dict[str, str]:
    """Return the name of the node each replica runs on, by workload."""
    leases = Lease.objects.open().filter(
        workload__in=[replica.workload_id for replica in replicas if replica.workload_id]
    )
    return dict(leases.values_list("workload_id", "node__name"))
