"""Middleware that sets the origin of a request, so that its changes are audited correctly."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from portal.accounts.client_address import client_address
from portal.accounts.request_origin import Origin, origin_context
from portal.core.middleware import request_id_of


class PrincipalMiddleware:
    """Set the origin of the request: address and request id now, the person once authenticated."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        address = client_address(request)
        origin = Origin(ip=address, label="anonymous", request_id=request_id_of(request))
        with origin_context(origin):
            return self.get_response(request)
