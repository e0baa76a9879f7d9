"""The routes of the gateway: who may use each, and how it responds.

Every route is in ROUTES with its policy, so that a test can enumerate them. `open` needs no key,
the others need a key of the endpoint with that scope. A route cannot be defined without a policy.
The key is the bearer token. SageMaker clients, which sign requests, send it as their access key id.

The response for another tenant's endpoint is identical to that for a missing one.
"""

import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from slipway.schemas.hosts import AllowedHosts, HostRefused
from slipway.schemas.serving import KeyScope
from workers.gateway import answers, metadata
from workers.gateway.http_parser import BadRequest, Head, read_head
from workers.gateway.request import RequestFormat
from workers.gateway.routing import Endpoint
from workers.gateway.routing_table import Key, RoutingTable
from workers.serving.wire import Contract

OPEN: Final = "open"
_MEMO_ENTRIES: Final = 20_000
_LONGEST_MEMO_BYTES: Final = 2048
_SIGNED: Final = re.compile(rb"AWS4-HMAC-SHA256 +Credential=([!-.0-~]{1,200})/[^,]*,.*")
_STEP: Final = rb"([A-Za-z0-9._~-]{1,200})"
_JSON_TYPES: Final = frozenset({b"", b"application/json", b"text/json"})
_V1: Final = rb"/v1/%b" % _STEP
_V2: Final = rb"/v2/models/%b(?:/versions/%b)?" % (_STEP, _STEP)
TellAll = Callable[[RoutingTable], bytes]
Tell = Callable[[Endpoint], bytes]


@dataclass(frozen=True)
class RoutePattern:
    """A route: its method, pattern of paths, policy and action.

    `tell` and `tell_all` respond immediately. Without them the route predicts, in the format of
    `contract`.
    """

    method: bytes
    path: re.Pattern[bytes]
    policy: str
    tell: Tell | None = None
    tell_all: TellAll | None = None
    contract: Contract = Contract.SCORING
    is_sagemaker: bool = False


def _open(path: bytes, tell_all: TellAll) -> RoutePattern:
    return RoutePattern(b"GET", re.compile(path), OPEN, tell_all=tell_all)


def _read(path: bytes, tell: Tell) -> RoutePattern:
    return RoutePattern(b"GET", re.compile(path), KeyScope.READ, tell)


def _predict(path: bytes, contract: Contract, *, is_sagemaker: bool = False) -> RoutePattern:
    pattern = re.compile(path)
    return RoutePattern(
        b"POST", pattern, KeyScope.PREDICT, contract=contract, is_sagemaker=is_sagemaker
    )


ROUTES: Final = (
    _open(rb"/healthz", metadata.liveness),
    _open(rb"/v2/health/live", metadata.live),
    _open(rb"/v2/health/ready", metadata.gateway_ready),
    _open(rb"/v2", metadata.server),
    _predict(_V1 + rb"/(?:predict|invocations)", Contract.SCORING),
    _predict(rb"/invocations", Contract.SCORING),
    _predict(rb"/endpoints/%b/invocations" % _STEP, Contract.SCORING, is_sagemaker=True),
    _predict(_V2 + rb"/infer", Contract.INFER),
    _read(rb"/(?:ping|health)", metadata.ping),
    _read(_V1, metadata.endpoint),
    _read(_V1 + rb"/(?:ping|health)", metadata.ping),
    _read(_V1 + rb"/openapi\.json", metadata.openapi),
    _read(_V2, metadata.model),
    _read(_V2 + rb"/ready", metadata.ready),
)


class RequestHead:
    """Facts about a request known from its head. `refused` is the response if it is rejected."""

    __slots__ = (
        "contract",
        "expects",
        "head_len",
        "is_chunked",
        "keep_alive",
        "key",
        "length",
        "refused",
        "request_format",
        "tell",
        "usual",
        "variant",
    )

    def __init__(self, head: Head) -> None:
        self.length = head.length
        self.is_chunked = head.is_chunked
        self.expects = head.expects_continue
        # HTTP/1.0 needs an explicit keep-alive header. The connection is closed instead.
        self.keep_alive = head.keep_alive and not head.is_old
        self.refused: bytes | None = None
        self.key: Key | None = None
        self.tell: Callable[[], bytes] | None = None
        self.contract: int = Contract.SCORING
        self.head_len = 0
        self.variant = False
        self.request_format = RequestFormat()
        self.usual: CachedRequestHead | None = None


class CachedRequestHead:
    """Cached head of a prediction request, for a client that repeats it.

    A request that begins with `start`, up to `body_at`, and has `size` bytes is complete. Valid
    while `generation` is that of the routing table.
    """

    __slots__ = ("body_at", "entry", "generation", "key", "size", "start")

    def __init__(self, start: bytes, entry: RequestHead, key: Key, generation: int) -> None:
        self.start = start
        self.body_at = len(start)
        self.size = len(start) + entry.length
        self.entry = entry
        self.key = key
        self.generation = generation


class Router:
    """Parses heads and resolves routes. Known heads are cached until the routing table changes."""

    def __init__(self, table: RoutingTable) -> None:
        self.table = table
        # Allowed hosts, set before the gateway listens.
        self.hosts: AllowedHosts | None = None
        self.known: dict[bytes, RequestHead] = {}
        # Version of the cached heads, incremented when the table changes.
        self.generation = 0

    def clear_cache(self) -> None:
        """Clear the cached heads, because the routing table changed."""
        self.generation += 1
        self.known.clear()

    def open(self, block: bytes) -> RequestHead:
        """Return the parsed head of a request. Raise BadRequest if it is not valid."""
        entry = self.known.get(block)
        if entry is not None:
            return entry
        head = read_head(block)
        self._check_host(head)
        entry = RequestHead(head)
        self._resolve(entry, head)
        entry.request_format = RequestFormat(entry.contract, entry.head_len, entry.variant)
        if len(block) <= _LONGEST_MEMO_BYTES and b"AWS4" not in block:
            if len(self.known) >= _MEMO_ENTRIES:
                self.known.clear()
            self.known[block] = entry
            if entry.key and not (entry.refused or entry.tell or entry.is_chunked):
                entry.usual = CachedRequestHead(
                    block + b"\r\n\r\n", entry, entry.key, self.generation
                )
        return entry

    def refuse_now(self, key: Key, now: float) -> bytes | None:
        """Return the response if a key is expired or over its rate (monotonic time), else None."""
        endpoint = key.endpoint
        if key.expires != math.inf and key.expires <= time.time():
            endpoint.count.unauthorized += 1
            return _UNAUTHORIZED
        if key.bucket is not None and not key.bucket.acquire(now):
            endpoint.count.rate_limited += 1
            return _rate_limited("This key", key.bucket.wait_s())
        if endpoint.bucket is not None and not endpoint.bucket.acquire(now):
            if key.bucket is not None:
                key.bucket.refund()
            endpoint.count.rate_limited += 1
            return _rate_limited("The endpoint", endpoint.bucket.wait_s())
        return None

    def _check_host(self, head: Head) -> None:
        """Raise BadRequest for a host that is not the gateway's."""
        if self.hosts is None:
            return
        host = head.headers.get(b"host")
        try:
            self.hosts.accept([] if host is None else [host.decode("latin1")])
        except HostRefused as refusal:
            raise BadRequest(refusal.status, refusal.code, refusal.detail) from None

    def _resolve(self, entry: RequestHead, head: Head) -> None:
        matches = [(route, match) for route in ROUTES if (match := route.path.fullmatch(head.path))]
        if not matches:
            entry.refused = answers.NOT_FOUND
            return
        right = [(route, match) for route, match in matches if route.method == head.method]
        if not right:
            allowed = b", ".join(sorted({route.method for route, _ in matches})).decode()
            entry.refused = answers.problem(
                405, "method_not_allowed", f"This address allows only {allowed}."
            )
            return
        route, match = right[0]
        if route.tell_all is not None:
            entry.tell = partial(route.tell_all, self.table)
            return
        key = self._authorize(entry, head, route, match)
        if key is None:
            return
        entry.key = key
        if route.tell is None:
            self._read_body_headers(entry, key.endpoint, head, route)
        elif key.expires <= time.time():
            entry.refused = _UNAUTHORIZED
        else:
            entry.tell = partial(route.tell, key.endpoint)

    def _authorize(
        self, entry: RequestHead, head: Head, route: RoutePattern, match: re.Match[bytes]
    ) -> Key | None:
        key = self.table.key(_credential(head))
        if key is None:
            entry.refused = _UNAUTHORIZED
            asked_for = self.table.by_name.get(match[1]) if match.re.groups else None
            if asked_for is not None:
                asked_for.count.unauthorized += 1
            return None
        endpoint = self.table.by_name.get(match[1]) if match.re.groups else key.endpoint
        if endpoint is not key.endpoint:
            entry.refused = _no_endpoint(match[1])
            return None
        if match.re.groups > 1 and match[2] is not None:
            served = {
                revision.route.model_version.encode() for revision in endpoint.revisions.values()
            }
            if match[2] not in served:
                detail = f"Version {match[2].decode()} is not served here."
                entry.refused = answers.problem(404, "not_found", detail)
                return None
        if route.policy not in key.scopes:
            entry.refused = answers.problem(
                403,
                "scope_missing",
                f"This key does not have the scope {route.policy}.",
                "Use a key with this scope.",
            )
            return None
        return key

    def _read_body_headers(
        self, entry: RequestHead, endpoint: Endpoint, head: Head, route: RoutePattern
    ) -> None:
        entry.contract, entry.variant = route.contract, route.is_sagemaker
        limit = endpoint.route.limits.max_body_bytes
        if head.length > limit:
            endpoint.count.too_large += 1
            entry.refused = answers.problem(
                413,
                "body_too_large",
                f"The body has {head.length} bytes; the limit of this endpoint is {limit}.",
                "Send fewer rows at once.",
            )
            return
        if b"content-encoding" in head.headers:
            entry.refused = _wrong_type("The body is compressed, which is not supported.")
            return
        media, _, parameter = head.headers.get(b"content-type", b"").lower().partition(b";")
        media = media.strip()
        if parameter and parameter.strip() not in (b"charset=utf-8", b'charset="utf-8"'):
            entry.refused = _wrong_type("The body must be in UTF-8.")
        elif route.contract == Contract.INFER:
            self._read_head_length(entry, head)
        elif media == b"text/csv":
            entry.contract = Contract.SCORING_CSV
        elif media not in _JSON_TYPES:
            entry.refused = _wrong_type(
                f"The body is {media.decode(errors='replace')[:100]}; it must be application/json "
                "or text/csv.",
                "Name its type: curl -d, for example, needs -H 'Content-Type: application/json'.",
            )

    def _read_head_length(self, entry: RequestHead, head: Head) -> None:
        headers = head.headers.get(b"inference-header-content-length")
        if headers is None:
            return
        if not re.fullmatch(rb"[0-9]{1,10}", headers) or (
            not head.is_chunked and int(headers) > head.length
        ):
            entry.refused = answers.problem(
                400,
                "malformed_request",
                "Inference-Header-Content-Length is not a length within the body.",
            )
            return
        entry.head_len = int(headers)


def _credential(head: Head) -> bytes:
    headers = head.headers.get(b"authorization", b"")
    if headers[:7].lower() == b"bearer ":
        return headers[7:].strip()
    signed = _SIGNED.fullmatch(headers)
    return signed[1] if signed else b""


def _rate_limited(who: str, wait_s: float) -> bytes:
    return answers.problem(
        429,
        "rate_limited",
        f"{who} has exceeded its rate limit.",
        "Try again after Retry-After.",
        retry_after_s=max(1, min(3600, round(wait_s + 0.5))),
    )


def _wrong_type(detail: str, next_step: str | None = None) -> bytes:
    return answers.problem(415, "unsupported_media_type", detail, next_step)


def _no_endpoint(name: bytes) -> bytes:
    return answers.problem(404, "not_found", f"There is no endpoint {name.decode()!r}.")


_UNAUTHORIZED: Final = answers.problem(
    401,
    "not_authenticated",
    "The key of the endpoint is missing, unknown, expired or revoked.",
    "Send it as `Authorization: Bearer KEY`.",
)
