"""A prediction on its way: from the connection it came by to the answer."""

from typing import Protocol

from workers.gateway.segments import Entry, entry


class Caller(Protocol):
    """Whoever asked and waits for bytes."""

    def finish(self, data: bytes) -> None:
        """Give the whole answer."""


class Pending:
    """One request. `shadow_of` is the id of the prediction it copies, with the outputs to match.

    `variant` asks for the header in which SageMaker's clients look for who answered.
    """

    __slots__ = (
        "body",
        "caller",
        "contract",
        "head_len",
        "key_id",
        "shadow_of",
        "since",
        "tries",
        "variant",
    )

    def __init__(
        self,
        caller: Caller | None,
        key_id: bytes,
        contract: int,
        head_len: int,
        body: bytes,
        since: float,
        variant: bool,
    ) -> None:
        self.caller = caller
        self.key_id = key_id
        self.contract = contract
        self.head_len = head_len
        self.body = body
        self.since = since
        self.variant = variant
        self.tries = 0
        self.shadow_of: tuple[bytes, bytes] | None = None

    def copied(self, name: bytes, outputs: bytes, now: float) -> "Pending":
        """Return a copy for a shadow, of the prediction of that id, which has these outputs."""
        copy = Pending(
            None, self.key_id, self.contract, self.head_len, self.body, now, variant=False
        )
        copy.shadow_of = (name, outputs)
        return copy

    def failed(self, name: bytes, at_ns: int, took: float, status: int) -> Entry:
        """Return what is kept of it when it failed, after so many seconds."""
        # What is said of inputs may repeat them, also those that are to be hidden: it is not kept.
        return entry(
            *(name, self.key_id, at_ns, int(took * 1e6), self.body, b""),
            *(self.head_len, 0, self.contract, 0, status),
        )
