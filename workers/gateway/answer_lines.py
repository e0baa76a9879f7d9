"""HTTP responses to predictions as bytes, with the headers about the revision."""

from typing import Final

from slipway.schemas.serving import RevisionRoute
from workers.gateway import answers
from workers.gateway.request import Caller, Prediction
from workers.serving.wire import Content, ResponseFrame

TYPES: Final = {
    Content.JSON: answers.JSON,
    Content.BINARY: answers.BINARY,
    Content.PROBLEM: answers.PROBLEM,
}
_FALLBACK: Final = b"x-slipway-fallback: standby\r\n"


def named(name: bytes, pending: Prediction) -> bytes:
    """Return the headers of an error response."""
    lines = b"x-slipway-prediction-id: %b\r\n" % name
    return lines + _FALLBACK if pending.is_fallback else lines


def success(route: RevisionRoute, pending: Prediction, answer: ResponseFrame, name: bytes) -> bytes:
    """Return a successful response of a revision, with all headers of its request format."""
    version = route.model_version.encode("ascii", "replace")
    lines = b"x-slipway-model-version: %b\r\n%b" % (version, named(name, pending))
    if pending.request_format.variant:
        lines += b"x-amzn-invoked-production-variant: %b\r\n" % route.id.encode()
    if answer.head_len:
        lines += b"inference-header-content-length: %d\r\n" % answer.head_len
    return answers.answer(200, answer.body, TYPES[Content(answer.content)], lines)


def write_all(ready: list[tuple[Caller, bytes]]) -> None:
    """Write the response of each caller."""
    for caller, data in ready:
        caller.finish(data)


def deliver(callers: list[Caller], data: list[bytes], now: float) -> None:
    """Write successful responses to callers."""
    for caller, answer in zip(callers, data, strict=True):
        caller.deliver(answer, now)
