"""Why a model server says no.

ModelServerError
├── BadInput        what the client sent cannot be predicted on; the answer is 400
└── NotReady        the replica cannot become ready; the reason is reported and the process ends
"""

from collections.abc import Sequence

from slipway.schemas.problem import FieldFault


class ModelServerError(Exception):
    """Base of what a model server raises on purpose."""


class BadInput(ModelServerError):
    """The request does not fit the model. `faults` names each input and what was expected."""

    def __init__(self, detail: str, faults: Sequence[FieldFault] = (), next_step: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.faults = tuple(faults)
        self.next_step = next_step


class NotReady(ModelServerError):
    """Files, format, warm-up or golden predictions are not as they have to be."""
