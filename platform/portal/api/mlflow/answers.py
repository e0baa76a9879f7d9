"""Responses as MLflow clients expect them: JSON, and errors with a known code."""

from dataclasses import dataclass, field
from typing import Any

import orjson

_JSON = (b"content-type", b"application/json")
RETRY_SOON = (b"retry-after", b"2")


@dataclass(frozen=True)
class FullResponse:
    """A complete response. Headers are ASGI's pairs of bytes."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = field(default=(_JSON,))

    async def send(self, send: Any) -> None:
        """Send the response to the client."""
        headers = [*self.headers, (b"content-length", str(len(self.body)).encode())]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body})


def answer(content: Any) -> FullResponse:
    """Return 200 with some JSON."""
    return FullResponse(200, orjson.dumps(content))


@dataclass
class Refusal(Exception):
    """A request that gets an error.

    `code` is one of MLflow's. Clients retry a 5xx or 429 and give up on the rest.
    """

    status: int
    code: str
    message: str
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def as_answer(self) -> FullResponse:
        """Return the response to send."""
        body = orjson.dumps({"error_code": self.code, "message": self.message})
        return FullResponse(self.status, body, (_JSON, *self.headers))


def invalid(message: str) -> Refusal:
    """Return the refusal of an invalid request."""
    return Refusal(400, "INVALID_PARAMETER_VALUE", message)


def missing(message: str) -> Refusal:
    """Return the refusal for an object that does not exist or belongs to another project."""
    return Refusal(404, "RESOURCE_DOES_NOT_EXIST", message)


def unavailable(message: str) -> Refusal:
    """Return the refusal that makes clients wait and retry."""
    return Refusal(503, "TEMPORARILY_UNAVAILABLE", message, (RETRY_SOON,))
