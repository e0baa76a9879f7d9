"""Errors of the model server.

ModelServerError
├── BadInput        the request is not valid for prediction, answered with 400
└── NotReady        the replica cannot become ready: the reason is reported and the process ends
"""

from collections.abc import Sequence

from slipway.schemas.problem import FieldError


class ModelServerError(Exception):
    """Base of what a model server raises on purpose."""


class BadInput(ModelServerError):
    """The request does not fit the model. `faults` names each input and what was expected."""

    def __init__(self, detail: str, faults: Sequence[FieldError] = (), next_step: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.faults = tuple(faults)
        self.next_step = next_step


class NotReady(ModelServerError):
    """Files, format, warm-up or golden predictions are not as they have to be."""


def quote_value(value: object, *, limit: int = 60) -> str:
    """Return a value in quotes for a message, with a word about what does not fit."""
    text = "null" if value is None else f"{str(value)[:limit]!r}"
    length = len(str(value))
    return text if length <= limit else f"{text} (the first {limit} of {length} characters)"


def one_line(error: BaseException | str, *, limit: int = 2000) -> str:
    """Return a library's message as one line, and say so if it is truncated."""
    text = " ".join(str(error).split())
    if len(text) <= limit:
        return text
    return f"{text[:limit]} … (and {len(text) - limit} more characters)"
