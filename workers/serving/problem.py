"""Errors of the data plane: one body that clients of every contract can read.

problem+json (RFC 9457) with three members more, each where the client of a contract looks for the
message: `error` (Open Inference Protocol), `error_code` and `message` (MLflow, SageMaker).
"""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import orjson

from slipway.schemas.problem import FieldError

_MLFLOW_CODES: Final = {
    400: "BAD_REQUEST",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "RESOURCE_DOES_NOT_EXIST",
    429: "REQUEST_LIMIT_EXCEEDED",
    503: "TEMPORARILY_UNAVAILABLE",
}


def problem_body(
    status: int,
    code: str,
    detail: str,
    next_step: str | None = None,
    errors: Sequence[FieldError] = (),
) -> bytes:
    """Return the body of an error answer."""
    body: dict[str, Any] = {
        "type": f"urn:slipway:problem:{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if next_step is not None:
        body["next_step"] = next_step
    if errors:
        body["errors"] = [{"field": fault.field, "message": fault.message} for fault in errors]
    body["error"] = body["message"] = detail
    body["error_code"] = _MLFLOW_CODES.get(
        status, "INTERNAL_ERROR" if status >= 500 else "BAD_REQUEST"
    )
    return orjson.dumps(body)
