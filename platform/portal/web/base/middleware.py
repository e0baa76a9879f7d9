"""Middleware for every page: error pages and security headers."""

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse

from portal.core.errors import SlipwayError
from portal.web.base.error_pages import error_page, no_page
from portal.web.streams.sse import newest_id

# Our pages use none of these features, so injected content may not use them either.
_PERMISSIONS = "camera=(), microphone=(), geolocation=(), payment=(), usb=(), browsing-topics=()"


class PageMiddleware:
    """Show our errors as pages, and keep signed-in pages out of every cache."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if _is_page_request(request) and response.status_code == 405 and not response.content:
            response = no_page(request, response)
        response.headers.setdefault("Permissions-Policy", _PERMISSIONS)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        if response.headers.get("Content-Type", "").startswith("text/html"):
            # After signing out, the back button must not show a tenant's page again.
            response.headers.setdefault("Cache-Control", "no-store, private")
        return response

    def process_view(self, request: HttpRequest, *_: Any) -> None:
        """Note, before anything is looked up, which live event is the newest.

        What changes while the page is drawn is then news to it, not a gap.
        """
        if request.method == "GET" and "text/html" in request.headers.get("Accept", ""):
            request.live_position = newest_id()  # type: ignore[attr-defined]

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Return the error page of a SlipwayError from a page's view. Other errors are a 500."""
        if request.path.startswith("/api/") or not isinstance(error, SlipwayError):
            return None
        return error_page(request, error)


def _is_page_request(request: HttpRequest) -> bool:
    """Return whether a browser shows the response as a page of the portal, not of an API."""
    is_ours = not request.path.startswith(("/api/", "/mlflow/", "/hub/"))
    return is_ours and request.method == "GET" and "text/html" in request.headers.get("Accept", "")
