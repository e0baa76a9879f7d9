"""The error body every door of Slipway answers with: problem+json, RFC 9457."""

from slipway.schemas.base import AnswerSchema


class FieldFault(AnswerSchema):
    """One field that was wrong and what was expected of it."""

    field: str
    message: str


class Problem(AnswerSchema):
    """What happened, why, and what to do next."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    next_step: str | None = None
    request_id: str | None = None
    errors: list[FieldFault] = []
