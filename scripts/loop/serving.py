"""Demo steps: create an endpoint, roll out a canary under traffic, and request predictions."""

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import httpx

from scripts.loop.data import PROJECT, image_of
from scripts.loop.hardware import REPLICA_TIER
from scripts.loop.steps import DemoError, ReasonReporter, show, wait_for
from scripts.loop.training_run import MODEL
from slipway import Client, Endpoint
from slipway.errors import NotFound, SlipwayError
from slipway.schemas.endpoints import EndpointOut
from slipway.schemas.money import dollars

ENDPOINT: Final = "demo-digits"  # names of endpoints are unique in an installation
_SERVES_WITHIN_S: Final = 600.0
_STEPS: Final = (10, 50)  # percent, before 100
_BAKE_S: Final = 3.0
_PAUSE_S: Final = 0.05
_PREDICTIONS: Final = 200


class Key:
    """A new endpoint key, which replaces those of the same name from an earlier demo."""

    def __init__(self, client: Client, name: str) -> None:
        keys = client.endpoints.keys
        for old in keys.list(ENDPOINT, project=PROJECT):
            if old.name == name and old.revoked_at is None:
                keys.revoke(ENDPOINT, old.id, project=PROJECT)
        self.created = keys.create(ENDPOINT, name, project=PROJECT, expires_in_days=1)

    def endpoint(self, endpoint: EndpointOut) -> Endpoint:
        """Return a client of the endpoint that has only the key and talks only to the gateway.

        Gateways receive new keys, and replicas that started with Slipway, after a short delay.
        This waits until the gateway accepts the key and a replica responds.
        """
        headers = {"Authorization": f"Bearer {self.created.key}"}

        def is_reachable() -> bool | None:
            response = httpx.get(f"{endpoint.url}/ping", headers=headers, timeout=10)
            return response.is_success or None

        wait_for(is_reachable, "the gateway with the key and a replica", within_s=_SERVES_WITHIN_S)
        return Endpoint(ENDPOINT, key=self.created.key, url=endpoint.url)


class Traffic:
    """Continuous prediction requests, for as long as the block lasts."""

    def __init__(self, endpoint: Endpoint, rows: Sequence[Sequence[float]]) -> None:
        self.succeeded = 0
        self.failed: list[SlipwayError] = []
        self._endpoint = endpoint
        self._rows = rows
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _send(self) -> None:
        at = 0
        while not self._is_over.wait(_PAUSE_S):
            try:
                self._endpoint.predict([image_of(self._rows[at % len(self._rows)])])
                self.succeeded += 1
            except SlipwayError as error:
                self.failed.append(error)
            at += 1


def weights_of(endpoint: EndpointOut) -> dict[str, int]:
    """Return the share of the traffic of each version, in percent."""
    return {revision.version: revision.weight for revision in endpoint.revisions if revision.weight}


def create(client: Client, number: int) -> EndpointOut:
    """Create the endpoint with a version, unless it exists. Returns it once it serves."""
    try:
        client.endpoints.get(ENDPOINT, project=PROJECT)
    except NotFound:
        client.endpoints.create(
            ENDPOINT,
            MODEL,
            project=PROJECT,
            version=number,
            tier=REPLICA_TIER,
            # A laptop that also trains may be slow at any time. Errors still roll a canary back.
            rules={"max_latency_factor": None},
        )
    show("endpoint", client.endpoints.page(ENDPOINT, project=PROJECT))
    reasons = ReasonReporter()
    endpoint = wait_for(
        lambda: _ready(client, reasons), "the endpoint to serve", within_s=_SERVES_WITHIN_S
    )
    show("traffic", _shares(endpoint))
    show("price", f"{dollars(endpoint.nano_usd_per_hour)} an hour while it serves")
    return endpoint


def _ready(client: Client, reasons: ReasonReporter) -> EndpointOut | None:
    endpoint = client.endpoints.get(ENDPOINT, project=PROJECT)
    if endpoint.state != "serving":
        reasons.report(endpoint.reason)
    if endpoint.state == "failed":
        raise DemoError(f"the endpoint failed: {endpoint.reason}")
    is_served = any(revision.weight and revision.replicas_ready for revision in endpoint.revisions)
    # An active rollout, of this demo or an earlier one, would make the next one fail.
    is_ready = endpoint.state == "serving" and is_served and endpoint.rollout is None
    return endpoint if is_ready else None


def _shares(endpoint: EndpointOut) -> str:
    shares = weights_of(endpoint).items()
    return ", ".join(f"{weight} % to version {version}" for version, weight in shares)


def promote_by_canary(client: Client, number: int, rows: Sequence[Sequence[float]]) -> EndpointOut:
    """Roll a version out in steps, under traffic. Returns the endpoint."""
    endpoint = client.endpoints.get(ENDPOINT, project=PROJECT)
    show("endpoint", client.endpoints.page(ENDPOINT, project=PROJECT))
    if weights_of(endpoint) == {str(number): 100}:
        show("traffic", f"{_shares(endpoint)}, by an earlier demo")
        return endpoint
    client.endpoints.promote(
        ENDPOINT,
        project=PROJECT,
        version=number,
        plan="canary",
        percents=_STEPS,
        bake_s=_BAKE_S,
    )
    key = Key(client, "a camera")
    with key.endpoint(endpoint) as predictor, Traffic(predictor, rows) as traffic:
        endpoint = _Canary(client, number).wait_for_all_traffic()
    if traffic.failed:
        raise DemoError(f"{len(traffic.failed)} predictions failed: {traffic.failed[0]}")
    show("served", f"{traffic.succeeded} predictions during the rollout, none failed")
    return endpoint


class _Canary:
    """Polls a rollout until it has ended, and prints the traffic shares."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._number = str(number)
        self._last_shares = ""

    def wait_for_all_traffic(self) -> EndpointOut:
        """Wait until the version has all traffic, or raise DemoError. Returns the endpoint."""
        return wait_for(self._poll, "the end of the canary", within_s=_SERVES_WITHIN_S)

    def _poll(self) -> EndpointOut | None:
        endpoint = self._client.endpoints.get(ENDPOINT, project=PROJECT)
        shares = _shares(endpoint)
        if shares != self._last_shares:
            self._last_shares = shares
            show("traffic", shares)
        if endpoint.rollout is not None:
            return None
        if weights_of(endpoint) == {self._number: 100}:
            return endpoint
        last = next(iter(self._client.endpoints.rollouts(ENDPOINT, project=PROJECT)))
        if not last.reason:
            return None  # the rollout has progressed between the two requests: poll again
        raise DemoError(f"the canary was rolled back: {last.reason}")


def predict(client: Client, endpoint: EndpointOut, rows: Sequence[Sequence[float]]) -> None:
    """Request predictions through the gateway and compare them with the labels."""
    key, sample = Key(client, "make demo"), rows[-_PREDICTIONS:]
    with key.endpoint(endpoint) as predictor:
        started = time.monotonic()
        scores = predictor.predict([image_of(row) for row in sample])
        took_ms = (time.monotonic() - started) * 1000
    digits = [row_scores.index(max(row_scores)) for row_scores in scores]
    correct = sum(label == int(row[-1]) for label, row in zip(digits, sample, strict=True))
    if correct < 0.9 * len(sample):
        raise DemoError(f"only {correct} of {len(sample)} predictions are correct")
    show("predictions", f"{correct} of {len(sample)} digits right, in {took_ms:.0f} ms")
    show("URL", f"{endpoint.url}/invocations, with the key {key.created.prefix}…")
