"""Answers as an MLflow client expects them: JSON, and errors with a code it knows."""

from dataclasses import dataclass, field
from typing import Any

import orjson

_JSON = (b"content-type", b"application/json")
RETRY_SOON = (b"retry-after", b"2")


@dataclass(frozen=True)
class FullResponse:
    """A whole answer. Headers are ASGI's pairs of bytes."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = field(default=(_JSON,))

    async def send(self, send: Any) -> None:
        """Write it to the client."""
        headers = [*self.headers, (b"content-length", str(len(self.body)).encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def answer(content: Any) -> FullResponse:
    """Return 200 with some JSON."""
    return FullResponse(200, orjson.dumps(content))


@dataclass
class Refusal(Exception):
    """A request that is answered with an error.

    `code` is one of MLflow's: clients repeat what ends in a 5xx or 429 and give up on the rest.
    """

    status: int
    code: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def as_answer(self) -> FullResponse:
        """Return it as the answer to send."""
        body = orjson.dumps({"error_code": self.code, "message": self.message})
        return FullResponse(self.status, body, (_JSON, *self.headers))


def invalid(message: str) -> Refusal:
    """Return the refusal of a request that cannot be right."""
    return Refusal(400, "INVALID_PARAMETER_VALUE", message)


def missing(message: str) -> Refusal:
    """Return the refusal for what is not there, or not this project's, which is the same."""
    return Refusal(404, "RESOURCE_DOES_NOT_EXIST", message)


def unavailable(message: str) -> Refusal:
    """Return the refusal that makes clients wait and repeat."""
    return Refusal(503, "TEMPORARILY_UNAVAILABLE", message, (RETRY_SOON,))
