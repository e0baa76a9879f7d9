"""A prediction in progress: from the connection of the client to the response."""

from dataclasses import dataclass, field
from typing import Protocol

from workers.gateway.capture_log.format import FALLBACK, Entry, entry


class Caller(Protocol):
    """Client that waits for response bytes."""

    def finish(self, data: bytes) -> None:
        """Write the complete response."""

    def deliver(self, data: bytes, now: float) -> None:
        """Write the complete response of a successful request, at that monotonic time."""


@dataclass(frozen=True, slots=True)
class RequestFormat:
    """Format of a request. Plain means scoring in JSON, answered without additional headers.

    `variant` requests the header in which SageMaker clients look for the production variant.
    """

    contract: int = 0
    head_len: int = 0
    variant: bool = False
    is_plain: bool = field(init=False)

    def __post_init__(self) -> None:
        """Set `is_plain`."""
        is_plain = not (self.contract or self.head_len or self.variant)
        object.__setattr__(self, "is_plain", is_plain)


class Prediction:
    """One request. `shadow_of` is the id of the prediction it copies, with the outputs to match.

    `is_fallback` requests went to a standby in place of the revisions with traffic.
    """

    __slots__ = (
        "body",
        "caller",
        "is_fallback",
        "key_id",
        "request_format",
        "shadow_of",
        "since",
        "tries",
    )

    def __init__(
        self, caller: Caller | None, key_id: bytes, ask: RequestFormat, body: bytes, since: float
    ) -> None:
        self.caller = caller
        self.key_id = key_id
        self.request_format = ask
        self.body = body
        self.since = since
        self.tries = 0
        self.is_fallback = False
        self.shadow_of: tuple[bytes, bytes] | None = None

    def copied(self, name: bytes, outputs: bytes, now: float) -> "Prediction":
        """Return a copy for the shadow, with the id and the outputs of this prediction."""
        copy = Prediction(None, self.key_id, self.request_format, self.body, now)
        copy.shadow_of = (name, outputs)
        return copy

    def failed(self, name: bytes, at_ns: int, took: float, status: int) -> Entry:
        """Return the capture log entry of a prediction that failed after `took` seconds."""
        # Error details may repeat inputs, including hidden ones, so they are not stored.
        return entry(
            *(name, self.key_id, at_ns, int(took * 1e6), self.body, b""),
            *(
                self.request_format.head_len,
                0,
                self.request_format.contract,
                FALLBACK if self.is_fallback else 0,
                status,
            ),
        )
