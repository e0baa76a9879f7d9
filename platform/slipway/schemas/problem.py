"""The error body of all Slipway APIs: problem+json, RFC 9457."""

from slipway.schemas.base import AnswerSchema


class FieldError(AnswerSchema):
    """One invalid field and what was expected."""

    field: str
    message: str


class Problem(AnswerSchema):
    """An error: what happened, why, and the next step."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str | None = None
    next_step: str | None = None
    request_id: str | None = None
    errors: list[FieldError] = []
