"""Pages for what went wrong: what happened, why, what to do."""

import json
import sys

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string

from portal.core.db_errors import raced
from portal.core.errors import Forbidden, NotFound, SlipwayError
from portal.core.middleware import request_id_of


class _InternalError(SlipwayError):
    status = 500
    title = "Internal error"


class _NoPage(SlipwayError):
    status = 405
    title = "Page not found"


def error_page(request: HttpRequest, error: SlipwayError) -> HttpResponse:
    """Show one of our errors as a page, or as a toast when only a part of a page was requested."""
    if request.headers.get("HX-Request") == "true":
        response = HttpResponse(status=error.status)
        words = " ".join(filter(None, (error.message, error.next_step)))
        response.headers["HX-Trigger"] = json.dumps({"toast": {"text": words, "level": "error"}})
    else:
        context = {"error": error, "request_id": request_id_of(request)}
        response = render(request, "web/error.html", context, status=error.status)
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Show that there is nothing at this address."""
    return error_page(request, NotFound())


def no_page(request: HttpRequest, refused: HttpResponse) -> HttpResponse:
    """Show that a URL only accepts form submissions, for a request with GET."""
    error = _NoPage(
        "This address only accepts form submissions; it was opened as a page.",
        next_step="Go back to the page with the form and submit it there.",
    )
    response = error_page(request, error)
    response.headers["Allow"] = refused.headers["Allow"]
    return response


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Show that a form came without its anti-forgery token."""
    error = Forbidden(
        "The form has expired, or cookies are blocked.",
        code="csrf",
        next_step="Go back, reload the page and submit the form again.",
    )
    return error_page(request, error)


def server_error(request: HttpRequest) -> HttpResponse:
    """Show that the fault is ours, with the id to give to the operator.

    What others may have caused at the same moment is shown as what it is. The page asks neither
    the session nor the database, because they may be what is broken.
    """
    error = raced(sys.exception()) or _InternalError(
        "Something went wrong in Slipway. The error was logged with the request id.",
        next_step="Try again; if it happens again, send the request id to an administrator.",
    )
    if request.headers.get("HX-Request") == "true":
        return error_page(request, error)
    context = {"error": error, "request_id": request_id_of(request)}
    response = HttpResponse(render_to_string("web/server_error.html", context), status=error.status)
    response.problem = error  # type: ignore[attr-defined]  # the API has its own format
    if error.retry_after_s is not None:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response
