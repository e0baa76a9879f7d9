"""Reads the status of an endpoint: its revisions, the active rollout, replicas, cost."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from django.db.models import Count, Q, QuerySet, Sum

from portal.core import clock
from portal.core.pagination import Page, paginate
from portal.endpoints.lifecycle import KEPT, EndpointState, ReplicaState
from portal.endpoints.models import Endpoint, Replica, Revision, Rollout, TrafficMinute
from portal.endpoints.models.rollouts import RolloutQuerySet
from portal.endpoints.pools import reachable
from portal.endpoints.replicas import desired_replicas
from portal.endpoints.services.traffic import Minute, sum_of
from portal.workloads.explanations import Explainer
from portal.workloads.lifecycle import ACTIVE
from portal.workloads.models import Lease

_SHOWN_REVISIONS = 20
_SHOWN_REPLICAS = 100
_MOST_REVISIONS = 100
# Period of the recent traffic in a list.
RECENT = timedelta(minutes=5)


@dataclass(frozen=True)
class EndpointStatus:
    """Present status of an endpoint. `ready` counts ready replicas by revision.

    `answered` and `failed` count the predictions of all revisions, `captured` and `uncaptured`
    those that were to be captured.
    """

    endpoint: Endpoint
    revisions: Sequence[Revision]
    rollout: Rollout | None
    ready: Counter[str]
    nano_usd_per_hour: int
    answered: int = 0
    failed: int = 0
    captured: int = 0
    uncaptured: int = 0
    revisions_left_out: int = 0

    @property
    def serving(self) -> list[Revision]:
        """Revisions with traffic, the largest share first. A paused endpoint has none."""
        if self.endpoint.status == EndpointState.PAUSED:
            return []
        answering = [revision for revision in self.revisions if revision.weight]
        return sorted(answering, key=lambda revision: -revision.weight)

    def state_of(self, revision: Revision) -> str:
        """Return the state of a revision. Those with traffic are `paused` with their endpoint."""
        is_paused = self.endpoint.status == EndpointState.PAUSED
        return "paused" if is_paused and revision.weight else str(revision.state)

    @property
    def capture_total(self) -> int:
        """Number of predictions that were to be captured."""
        return self.captured + self.uncaptured

    def desired_replicas(self, revision: Revision) -> int:
        """Return the desired number of replicas of a revision."""
        return desired_replicas(self.endpoint, revision)


def endpoint_status(endpoint: Endpoint) -> EndpointStatus:
    """Return the status of an endpoint, with its newest revisions and those that are warm."""
    value = endpoint.revisions.select_related("made_by", "environment_version__named").defer(
        "served"
    )
    newest = value.order_by("-number")[:_SHOWN_REVISIONS]
    warm = value.filter(state__in=[state.value for state in KEPT])
    revisions = {revision.pk: revision for revision in [*newest, *warm]}
    alive = Replica.objects.alive().filter(endpoint=endpoint)
    running = alive.filter(workload__state__in=[state.value for state in ACTIVE])
    ready = reachable(alive.ready().select_related("workload"))
    captures = endpoint.revisions.aggregate(
        kept=Sum("captured"),
        lost=Sum("uncaptured"),
        served=Sum("answered"),
        broken=Sum("failed"),
        all=Count("pk"),
    )
    return EndpointStatus(
        endpoint=endpoint,
        revisions=sorted(revisions.values(), key=lambda revision: -revision.number),
        rollout=rollouts_of(endpoint).under_way().first(),
        ready=Counter(replica.revision_id for replica in ready),
        nano_usd_per_hour=endpoint.tier.price(pool=endpoint.pool) * running.count(),
        answered=captures["served"] or 0,
        failed=captures["broken"] or 0,
        captured=captures["kept"] or 0,
        uncaptured=captures["lost"] or 0,
        revisions_left_out=(captures["all"] or 0) - len(revisions),
    )


def rollouts_of(endpoint: Endpoint) -> RolloutQuerySet:
    """Return the rollouts of an endpoint, newest first, with the relations that responses need."""
    rollouts = Rollout.objects.filter(endpoint=endpoint).order_by("-pk")
    return rollouts.select_related("revision", "previous", "made_by")


def replicas_of(endpoint: Endpoint) -> Sequence[Replica]:
    """Return the replicas of an endpoint that are alive or newest, in order from the newest."""
    replicas_queryset = Replica.objects.filter(endpoint=endpoint).select_related(
        "revision", "workload"
    )
    newest = replicas_queryset.order_by("-pk")[:_SHOWN_REPLICAS]
    replicas = {replica.pk: replica for replica in [*newest, *replicas_queryset.alive()]}
    return sorted(replicas.values(), key=lambda replica: replica.pk, reverse=True)


def replica_page(endpoint: Endpoint, *, cursor: str | None, limit: int) -> Page[Replica]:
    """Return live replicas and the newest ended ones. A cursor continues with older ended ones."""
    replicas = Replica.objects.filter(endpoint=endpoint).select_related("revision", "workload")
    living = [] if cursor else list(replicas.alive())
    ended = paginate(
        replicas.exclude(pk__in=replicas.alive().values("pk")), cursor=cursor, limit=limit
    )
    items = sorted([*living, *ended.items], key=lambda replica: replica.pk, reverse=True)
    return Page(items, ended.next_cursor)


def pending_reason(replica: Replica, explainer: Explainer) -> str:
    """Return what a replica waits for before it is ready, or "" if it does not wait."""
    if not replica.is_pending or replica.workload is None:
        return ""
    if replica.status == ReplicaState.LOADING:
        return "Loading the model. It serves traffic once its golden predictions match."
    return explainer.explain(replica.workload)


def nodes_of(replicas: Sequence[Replica]) -> dict[str, str]:
    """Return the name of the node each replica runs on, by workload."""
    leases = Lease.objects.open().filter(
        workload__in=[replica.workload_id for replica in replicas if replica.workload_id]
    )
    return dict(leases.values_list("workload_id", "node__name"))


@dataclass(frozen=True)
class Summary:
    """Summary of an endpoint for a list. `recent` is the traffic of the last minutes, summed.

    `requests_per_minute` is the traffic of the last hour, oldest first, where a page draws it.
    """

    endpoint: Endpoint
    recent: Minute
    revisions: Sequence[Revision] = field(default_factory=tuple)
    ready: int = 0
    nano_usd_per_hour: int = 0
    requests_per_minute: Sequence[int] = ()

    @property
    def rps(self) -> float:
        """Requests per second over the last minutes."""
        return self.recent.rps * 60 / RECENT.total_seconds()


def summaries_of(endpoints: Sequence[Endpoint]) -> list[Summary]:
    """Return a summary of each endpoint, with a fixed number of queries."""
    ids = [endpoint.pk for endpoint in endpoints]
    serving = Revision.objects.filter(endpoint__in=ids, weight__gt=0).defer("served", "counts")
    alive = Replica.objects.alive().filter(endpoint__in=ids)
    serving_replicas = reachable(alive.ready().select_related("workload"))
    ready = Counter(replica.endpoint_id for replica in serving_replicas)
    active = alive.filter(workload__state__in=[state.value for state in ACTIVE])
    running = Counter(active.values_list("endpoint_id", flat=True))
    timestamp = clock.now()
    traffic = TrafficMinute.objects.filter(endpoint__in=ids, at__gte=timestamp - RECENT)
    revisions, minutes = list(serving.order_by("-weight")), list(traffic)
    return [
        Summary(
            endpoint=endpoint,
            recent=sum_of(
                timestamp, [revision for revision in minutes if revision.endpoint_id == endpoint.pk]
            ),
            revisions=[revision for revision in revisions if revision.endpoint_id == endpoint.pk],
            ready=ready[endpoint.pk],
            nano_usd_per_hour=endpoint.tier.price(pool=endpoint.pool) * running[endpoint.pk],
        )
        for endpoint in endpoints
    ]


def revisions_of_versions(
    *, project_id: str, versions: Iterable[tuple[str, int]]
) -> list[Revision]:
    """Return the revisions that serve or served any of the model versions, newest first.

    Those of deleted endpoints are left out, and those beyond the first hundred.
    """
    matches = Q(pk__in=[])
    for model, number in versions:
        matches |= Q(model=model, model_version=str(number))
    revisions = Revision.objects.filter(matches, endpoint__project=project_id)
    revisions = revisions.exclude(endpoint__state=EndpointState.DELETED)
    return list(
        revisions.select_related("endpoint").defer("served").order_by("-pk")[:_MOST_REVISIONS]
    )


def endpoints_serving(*, project_id: str, model: str) -> QuerySet[Endpoint]:
    """Return the endpoints of a project that serve a model, whichever version, by name."""
    warm = Revision.objects.filter(model=model, state__in=[state.value for state in KEPT])
    endpoints = Endpoint.objects.present().filter(
        project=project_id, pk__in=warm.values("endpoint")
    )
    return endpoints.order_by("name")


def example_of(revision: Revision) -> str:
    """Return a body of `/invocations` to try a revision with, or "" if none is known.

    It is the example that was logged with the model, else a golden prediction.
    """
    served = revision.served
    if served.get("example"):
        return str(served["example"])
    golden = served.get("golden") or ()
    return json.dumps(golden[0]["request"]) if golden else ""
