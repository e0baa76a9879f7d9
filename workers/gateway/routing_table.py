"""The active snapshot: endpoints by name, keys by hash."""

import hashlib
import math
from collections.abc import Collection
from pathlib import Path

from slipway.schemas.serving import EndpointRoute, GatewaySnapshot, KeyRoute, KeyScope
from workers.gateway.busy_poll import BusyPoll
from workers.gateway.capture import CaptureLog
from workers.gateway.limits import TokenBucket, bucket_for
from workers.gateway.routing import Endpoint


class Key:
    """A key of an endpoint. The scope `predict` includes `read`."""

    __slots__ = ("bucket", "endpoint", "expires", "id", "route", "scopes")

    def __init__(self, route: KeyRoute, endpoint: Endpoint, old: TokenBucket | None) -> None:
        self.route = route
        self.id = route.id.encode()
        self.endpoint = endpoint
        self.expires = math.inf if route.expires_unix_s is None else float(route.expires_unix_s)
        self.bucket = bucket_for(route.rate, old)
        self.scopes = frozenset(route.scopes)
        if KeyScope.PREDICT in self.scopes:
            self.scopes |= {KeyScope.READ}


class RoutingTable:
    """Everything that is served. `apply` replaces it in one iteration of the loop."""

    def __init__(self, capture: CaptureLog, relay_folder: Path | None = None) -> None:
        self.version = 0
        self.is_loaded = False
        self.by_id: dict[str, Endpoint] = {}
        self.by_name: dict[bytes, Endpoint] = {}
        self.keys: dict[bytes, Key] = {}
        self._capture = capture
        self._relay_folder = relay_folder
        self.busy_poll = BusyPoll(self._is_idle)
        self._revoked: frozenset[str] = frozenset()

    def key(self, text: bytes) -> Key | None:
        """Return the key with this text, unless it was revoked."""
        return self.keys.get(hashlib.sha256(text).digest())

    def _is_idle(self) -> bool:
        return not any(endpoint.in_flight for endpoint in self.by_id.values())

    def apply(self, snapshot: GatewaySnapshot) -> None:
        """Apply a snapshot. Requests in progress finish with the previous routes."""
        routes = {route.id: route for route in snapshot.endpoints}
        for name in self.by_id.keys() - routes.keys():
            self.by_id.pop(name).close()
        for name, route in routes.items():
            if name in self.by_id:
                self.by_id[name].update(route)
            else:
                self.by_id[name] = Endpoint(
                    route, self._capture, self.busy_poll, self._relay_folder
                )
        self.by_name = {endpoint.route.name.encode(): endpoint for endpoint in self.by_id.values()}
        self.version = snapshot.version
        self.is_loaded = True
        self._read_keys(snapshot.endpoints)

    def revoke(self, revoked: Collection[str]) -> None:
        """Refuse keys, by id or SHA-256 in hex, whatever any snapshot contains."""
        self._revoked = frozenset(revoked)
        self._read_keys([endpoint.route for endpoint in self.by_id.values()])

    def _read_keys(self, routes: list[EndpointRoute]) -> None:
        keys = {}
        for route in routes:
            endpoint = self.by_id[route.id]
            for key in route.keys:
                if key.id in self._revoked or key.sha256 in self._revoked:
                    continue
                digest = bytes.fromhex(key.sha256)
                old = self.keys.get(digest)
                keys[digest] = Key(key, endpoint, old.bucket if old else None)
        self.keys = keys
