"""Error responses: problem+json with code, field and next step."""

from collections.abc import Callable, Iterable
from typing import Any

import structlog
from django.core.exceptions import BadRequest, RequestDataTooBig, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from portal.api.bodies import body_too_large
from portal.api.routing import AnsweredBefore
from portal.core.db_errors import raced
from portal.core.errors import InvalidInput, NotFound, SlipwayError
from portal.core.middleware import request_id_of
from portal.core.text import json_bytes
from portal.core.validation_messages import describe_validation_error
from slipway.schemas.problem import FieldError, Problem

log = structlog.get_logger(__name__)
CONTENT_TYPE = "application/problem+json"
_TITLES = {
    400: ("bad_request", "The request is not valid"),
    403: ("forbidden", "Not allowed"),
    404: ("not_found", "Not found"),
    405: ("method_not_allowed", "Method not allowed"),
    406: ("not_acceptable", "Not acceptable"),
    413: ("too_large", "Too large"),
    415: ("unsupported_media_type", "Send application/json"),
}


def problem_response(request: HttpRequest, problem: Problem, **headers: str) -> HttpResponse:
    """Return a problem as a response."""
    problem.request_id = request_id_of(request)
    body = json_bytes(problem.model_dump(exclude_none=True))
    response = HttpResponse(body, status=problem.status, content_type=CONTENT_TYPE)
    for name, value in headers.items():
        response.headers[name.replace("_", "-")] = value
    return response


def problem_of(error: SlipwayError, faults: Iterable[FieldError] = ()) -> Problem:
    """Describe a domain error as a problem."""
    return Problem(
        type=f"urn:slipway:problem:{error.code}",
        title=error.title,
        status=error.status,
        detail=error.message,
        code=error.code,
        field=error.field,
        next_step=error.next_step,
        errors=list(faults),
    )


def error_response(request: HttpRequest, error: SlipwayError) -> HttpResponse:
    """Return an error response, with Retry-After and WWW-Authenticate where required."""
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["Retry_After"] = str(error.retry_after_s)
    if error.status == 401:
        headers["WWW_Authenticate"] = 'Bearer realm="slipway"'
    return problem_response(request, problem_of(error), **headers)


def plain_problem(request: HttpRequest, status: int, detail: str | None = None) -> HttpResponse:
    """Return a problem for a status without an error class (405 and similar)."""
    code, title = _TITLES.get(status, (f"http_{status}", "The request failed"))
    problem = Problem(
        type=f"urn:slipway:problem:{code}",
        title=title,
        status=status,
        detail=detail or title + ".",
        code=code,
        next_step="See the portal's API page for the supported requests.",
    )
    return problem_response(request, problem)


def _fault(entry: dict[str, Any]) -> FieldError:
    places = [str(part) for part in entry.get("loc", ())]
    # ("body", "payload", "name") → "name". The name of the argument is internal.
    shown = places[2:] if places[:1] == ["body"] else places[1:]
    return FieldError(
        field=".".join(shown) or ".".join(places), message=describe_validation_error(entry)
    )


def _validation(request: HttpRequest, error: ValidationError) -> HttpResponse:
    faults = [_fault(entry) for entry in error.errors]
    first = faults[0] if faults else FieldError(field="body", message="is not valid")
    invalid = InvalidInput(
        f"{first.field}: {first.message}",
        field=first.field,
        next_step="Correct the fields listed under errors and send the request again.",
    )
    return problem_response(request, problem_of(invalid, faults))


def unexpected(request: HttpRequest, error: BaseException) -> HttpResponse:
    """Log an internal error, and return 500 with only the request id.

    Errors that concurrent changes may have caused are logged too, and returned as what they are.
    """
    slipway_error = raced(error)
    if slipway_error is not None:
        log.error("write_conflict", path=request.path, exc_info=error)
        return error_response(request, slipway_error)
    log.error("unhandled_error", path=request.path, exc_info=error)
    return internal(request)


def internal(request: HttpRequest) -> HttpResponse:
    """Return 500 for an internal error that was logged."""
    problem = Problem(
        type="urn:slipway:problem:internal",
        title="Internal error",
        status=500,
        detail="Something went wrong in Slipway. The error was logged with the request id.",
        code="internal",
        next_step="Try again; if it happens again, send the request id to an administrator.",
    )
    return problem_response(request, problem)


def register(api: NinjaAPI) -> None:
    """Map every kind of error of an API to problem+json."""

    def ours(request: HttpRequest, error: SlipwayError) -> HttpResponse:
        return error_response(request, error)

    def missing(request: HttpRequest, _error: Http404) -> HttpResponse:
        return error_response(request, NotFound())

    def oversized(request: HttpRequest, _error: RequestDataTooBig) -> HttpResponse:
        return error_response(request, body_too_large())

    def malformed(request: HttpRequest, _error: Exception) -> HttpResponse:
        return plain_problem(request, 400)

    def http(request: HttpRequest, error: HttpError) -> HttpResponse:
        # Ninja wraps errors of our parser. Report the original.
        if isinstance(error.__cause__, SlipwayError):
            return error_response(request, error.__cause__)
        return plain_problem(request, error.status_code, str(error))

    def answered_before(_request: HttpRequest, value: AnsweredBefore) -> HttpResponse:
        return value.answer

    handlers: dict[type[Exception], Callable[..., HttpResponse]] = {
        AnsweredBefore: answered_before,
        SlipwayError: ours,
        Http404: missing,
        RequestDataTooBig: oversized,
        SuspiciousOperation: malformed,
        BadRequest: malformed,
        MultiPartParserError: malformed,
        ValidationError: _validation,
        HttpError: http,
        Exception: unexpected,
    }
    for kind, handler in handlers.items():
        api.add_exception_handler(kind, handler)
