"""The steps of the endpoint: created, promoted by a canary under traffic, asked for predictions."""

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

import httpx

from scripts.loop.data import PROJECT, image_of
from scripts.loop.hardware import REPLICA_TIER
from scripts.loop.steps import DemoError, show, wait_for
from scripts.loop.training_run import MODEL
from slipway import Client, Endpoint
from slipway.errors import NotFound, SlipwayError
from slipway.schemas.endpoints import EndpointOut
from slipway.schemas.money import dollars

ENDPOINT: Final = "demo-digits"  # names of endpoints are unique in an installation
_SERVES_WITHIN_S: Final = 600.0
_STEPS: Final = (10, 50)  # percent, before 100
_BAKE_S: Final = 3.0
_REST_S: Final = 0.05
_ASKED: Final = 200


class Key:
    """A key of the endpoint, in place of those that an earlier demo made under the same name."""

    def __init__(self, client: Client, name: str) -> None:
        keys = client.endpoints.keys
        for old in keys.list(ENDPOINT, project=PROJECT):
            if old.name == name and old.revoked_at is None:
                keys.revoke(ENDPOINT, old.id, project=PROJECT)
        self.made = keys.create(ENDPOINT, name, project=PROJECT, expires_in_days=1)

    def ask(self, found: EndpointOut) -> Endpoint:
        """Return the endpoint as whoever holds the key asks it: at the gateway alone.

        Gateways learn of a new key, and of replicas that started with Slipway, within a moment: so
        this waits until this one is known and somebody is there to answer.
        """
        headers = {"Authorization": f"Bearer {self.made.key}"}

        def look() -> bool | None:
            answer = httpx.get(f"{found.url}/ping", headers=headers, timeout=10)
            return answer.is_success or None

        wait_for(look, "the gateway with the key and a replica", within_s=_SERVES_WITHIN_S)
        return Endpoint(ENDPOINT, key=self.made.key, url=found.url)


class Traffic:
    """Somebody who asks for a prediction all the time, for as long as the block lasts."""

    def __init__(self, endpoint: Endpoint, rows: Sequence[Sequence[float]]) -> None:
        self.answered = 0
        self.refused: list[SlipwayError] = []
        self._endpoint = endpoint
        self._rows = rows
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

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

    def _ask(self) -> None:
        at = 0
        while not self._is_over.wait(_REST_S):
            try:
                self._endpoint.predict([image_of(self._rows[at % len(self._rows)])])
                self.answered += 1
            except SlipwayError as error:
                self.refused.append(error)
            at += 1


def weights_of(found: EndpointOut) -> dict[str, int]:
    """Return which share of the traffic each version has, in percent."""
    return {one.version: one.weight for one in found.revisions if one.weight}


def create(client: Client, number: int) -> EndpointOut:
    """Create the endpoint with a version, unless it is there; returns it once it serves."""
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
    found = wait_for(lambda: _ready(client), "the endpoint to serve", within_s=_SERVES_WITHIN_S)
    show("traffic", _shares(found))
    show("price", f"{dollars(found.nano_usd_per_hour)} an hour while it serves")
    return found


def _ready(client: Client) -> EndpointOut | None:
    found = client.endpoints.get(ENDPOINT, project=PROJECT)
    if found.state == "failed":
        raise DemoError(f"the endpoint failed: {found.reason}")
    is_served = any(one.weight and one.replicas_ready for one in found.revisions)
    # An active rollout, of this demo or an earlier one, would make the next one fail.
    return found if found.state == "serving" and is_served and found.rollout is None else None


def _shares(found: EndpointOut) -> str:
    shares = weights_of(found).items()
    return ", ".join(f"{weight} % to version {version}" for version, weight in shares)


def promote_by_canary(client: Client, number: int, rows: Sequence[Sequence[float]]) -> EndpointOut:
    """Let a version take the traffic over in steps, while somebody asks; returns the endpoint."""
    found = client.endpoints.get(ENDPOINT, project=PROJECT)
    show("endpoint", client.endpoints.page(ENDPOINT, project=PROJECT))
    if weights_of(found) == {str(number): 100}:
        show("traffic", f"{_shares(found)}, by an earlier demo")
        return found
    client.endpoints.promote(
        ENDPOINT,
        project=PROJECT,
        version=number,
        plan="canary",
        percents=_STEPS,
        bake_s=_BAKE_S,
    )
    key = Key(client, "a camera")
    with key.ask(found) as endpoint, Traffic(endpoint, rows) as traffic:
        found = _Canary(client, number).until_it_has_all()
    if traffic.refused:
        raise DemoError(f"{len(traffic.refused)} predictions failed: {traffic.refused[0]}")
    show("answered", f"{traffic.answered} predictions during the rollout, none failed")
    return found


class _Canary:
    """A rollout that is looked at until it has ended."""

    def __init__(self, client: Client, number: int) -> None:
        self._client = client
        self._number = str(number)
        self._said = ""

    def until_it_has_all(self) -> EndpointOut:
        """Return the endpoint once the version has all traffic; raises DemoError if not."""
        return wait_for(self._look, "the end of the canary", within_s=_SERVES_WITHIN_S)

    def _look(self) -> EndpointOut | None:
        found = self._client.endpoints.get(ENDPOINT, project=PROJECT)
        said = _shares(found)
        if said != self._said:
            self._said = said
            show("traffic", said)
        if found.rollout is not None:
            return None
        if weights_of(found) == {self._number: 100}:
            return found
        last = next(iter(self._client.endpoints.rollouts(ENDPOINT, project=PROJECT)))
        if not last.reason:
            return None  # between the two answers the rollout has moved on: look again
        raise DemoError(f"the canary was rolled back: {last.reason}")


def predict(client: Client, found: EndpointOut, rows: Sequence[Sequence[float]]) -> None:
    """Ask for real predictions through the gateway and compare them with the labels."""
    key, asked = Key(client, "make demo"), rows[-_ASKED:]
    with key.ask(found) as endpoint:
        began = time.monotonic()
        scores = endpoint.predict([image_of(row) for row in asked])
        took_ms = (time.monotonic() - began) * 1000
    said = [one.index(max(one)) for one in scores]
    right = sum(label == int(row[-1]) for label, row in zip(said, asked, strict=True))
    if right < 0.9 * len(asked):
        raise DemoError(f"only {right} of {len(asked)} predictions are right")
    show("predictions", f"{right} of {len(asked)} digits right, in {took_ms:.0f} ms")
    show("ask it", f"{found.url}/invocations, with the key {key.made.prefix}…")
