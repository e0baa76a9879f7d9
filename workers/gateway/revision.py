"""A revision of an endpoint: its replicas, and the constant parts of its responses."""

from pathlib import Path
from typing import Protocol

import orjson

from slipway.schemas.serving import EndpointRoute, RevisionRoute, Signature
from workers.gateway import answers
from workers.gateway.counters import RevisionCount
from workers.gateway.replica_connection import ReplicaConnection
from workers.gateway.request import Prediction
from workers.serving.wire import ResponseFrame


class RevisionOwner(Protocol):
    """The endpoint of a revision, which handles the responses of its replicas."""

    route: EndpointRoute
    relay_folder: Path | None

    def update_shares(self) -> None:
        """Recompute the traffic shares after replicas changed."""

    def handle_responses(
        self, revision: "Revision", pairs: list[tuple[Prediction, ResponseFrame]]
    ) -> None:
        """Handle responses."""

    def handle_plain_responses(
        self, revision: "Revision", pendings: list[Prediction], bodies: list[bytes], queue_us: int
    ) -> None:
        """Handle successful JSON responses of requests with the same queueing time."""

    def lost(self, revision: "Revision", pendings: list[Prediction]) -> None:
        """Retry requests whose replica died, or answer them with 502."""


class Revision:
    """One revision: its replicas, and the constant parts of its responses."""

    def __init__(self, endpoint: RevisionOwner, route: RevisionRoute) -> None:
        self.endpoint = endpoint
        self.route = route
        self.links: dict[str, ReplicaConnection] = {}
        self.ready: list[ReplicaConnection] = []
        self.count = RevisionCount()
        # Some requests in progress were sent to it in place of the revisions with traffic.
        self.has_fallback = False
        self.update(route)

    def update(self, route: RevisionRoute) -> None:
        """Apply a new snapshot. Connections of unchanged replicas are not touched."""
        self.route = route
        self.context = orjson.dumps(
            {
                "endpoint": self.endpoint.route.id,
                "revision": route.id,
                "model": route.model,
                "model_version": route.model_version,
            }
        )
        version = route.model_version.encode("ascii", "replace")
        self.ok = (
            answers.head_start(200, answers.JSON)
            + b"x-slipway-model-version: %b\r\nx-slipway-prediction-id: " % version
        )
        replicas = {replica.id: replica for replica in route.replicas}
        for name, link in list(self.links.items()):
            if replicas.get(name) != link.route:
                del self.links[name]
                link.close()
        for name, replica in replicas.items():
            if name not in self.links:
                self.links[name] = ReplicaConnection(replica, self, self.endpoint.relay_folder)
                self.links[name].start()
        self.link_changed()

    def close(self) -> None:
        """Close the connections to all replicas, once they have answered."""
        for link in self.links.values():
            link.close()
        self.links.clear()
        self.ready = []

    @property
    def signature(self) -> Signature:
        """Return the model's signature: a replica's if one is connected, else the portal's."""
        for link in self.links.values():
            if link.welcome is not None:
                return link.welcome.signature
        return self.route.signature or Signature()

    @property
    def platform(self) -> str:
        """Format of the model, if a replica has reported it."""
        return next((link.welcome.platform for link in self.ready if link.welcome), "")

    @property
    def relay_problem(self) -> str:
        """Sentence on a replica that the relay does not lead to, "" while it leads to all."""
        return next(filter(None, (link.relay_problem for link in self.links.values())), "")

    def send(self, pendings: list[Prediction]) -> None:
        """Send predictions to the least busy ready replicas. At least one has to be ready."""
        self.count.in_flight += len(pendings)
        ready = self.ready
        if len(ready) == 1:
            ready[0].send(pendings)
            return
        # Balance the batch so that replicas are equally busy.
        loads = [len(link.waiting) for link in ready]
        shares: list[list[Prediction]] = [[] for _ in ready]
        for pending in pendings:
            place = loads.index(min(loads))
            loads[place] += 1
            shares[place].append(pending)
        for link, share in zip(ready, shares, strict=True):
            if share:
                link.send(share)

    # LinkOwner

    def link_changed(self) -> None:
        """Update the ready replicas."""
        self.ready = [link for link in self.links.values() if link.state == "ready"]
        self.endpoint.update_shares()

    def handle_responses(self, pairs: list[tuple[Prediction, ResponseFrame]]) -> None:
        """Forward responses to the endpoint."""
        self.count.in_flight -= len(pairs)
        self.endpoint.handle_responses(self, pairs)

    def handle_plain_responses(
        self, pendings: list[Prediction], bodies: list[bytes], queue_us: int
    ) -> None:
        """Forward successful JSON responses of requests with the same queueing time."""
        self.count.in_flight -= len(pendings)
        self.endpoint.handle_plain_responses(self, pendings, bodies, queue_us)

    def lost(self, pendings: list[Prediction]) -> None:
        """Forward predictions of a lost replica, which are retried once or answered with 502."""
        self.count.in_flight -= len(pendings)
        self.endpoint.lost(self, pendings)
