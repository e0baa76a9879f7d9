"""A prediction on its way: from the connection it came by to the answer."""

from typing import Protocol


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
