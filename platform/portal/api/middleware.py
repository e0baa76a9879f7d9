"""Middleware of all API requests: problem+json, rate limits, idempotency keys."""

import re
from collections.abc import Callable

from django.core.exceptions import (
    BadRequest,
    PermissionDenied,
    RequestDataTooBig,
    SuspiciousOperation,
)
from django.db import Error as DatabaseFault
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError

from portal.accounts.client_address import client_network
from portal.accounts.principal import principal_of
from portal.accounts.tokens import hash_of
from portal.api import idempotency
from portal.api.bodies import body_too_large
from portal.api.problems import (
    CONTENT_TYPE,
    error_response,
    internal,
    plain_problem,
    unexpected,
)
from portal.api.routing import answer_behind_the_gate
from portal.api.throttle import agent_throttle, api_throttle, optuna_throttle
from portal.api.uploads import is_upload
from portal.compute.tokens import bearer_of, has_node_shape
from portal.core.db_errors import database_busy
from portal.core.errors import NotFound, SlipwayError, Unauthenticated
from portal.endpoints.tokens import has_gateway_shape
from portal.notebooks.hub_tokens import has_hub_shape
from portal.workloads.tokens import has_workload_shape

GetResponse = Callable[[HttpRequest], HttpResponse]
API_PREFIX = "/api/"
# Node agents, gateways, replicas, the Hub and its servers are machines with their own limits.
MACHINE_PREFIXES = ("/api/agent/", "/api/gateway/", "/api/hub/")
OPTUNA_LOG = re.compile(r"\A/api/v1/projects/[^/]+/optuna-storages/[^/]+/log\Z")
_OF_DJANGO = (Http404, PermissionDenied, SuspiciousOperation, BadRequest, MultiPartParserError)


class ProblemMiddleware:
    """Converts every error below /api/ to problem+json, also those of Django itself."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if not request.path.startswith(API_PREFIX) or response.status_code < 400:
            return response
        if response.headers.get("Content-Type") == CONTENT_TYPE:
            return response
        if response.status_code == 404:
            return error_response(request, NotFound())
        # Raised before any view, or at the commit. Django has logged it.
        if response.status_code == 503:
            return error_response(request, getattr(response, "problem", database_busy()))
        if response.status_code >= 500:
            return internal(request)
        answer = plain_problem(request, response.status_code)
        if "Allow" in response.headers:
            answer.headers["Allow"] = response.headers["Allow"]
        return answer

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """Map exceptions of views below /api/. Pages have their own error pages.

        Django's own 400, 403 and 404 responses become problems on the way out.
        """
        if not request.path.startswith(API_PREFIX) or isinstance(error, _OF_DJANGO):
            return None
        if isinstance(error, SlipwayError):
            return error_response(request, error)
        return unexpected(request, error)


class RateLimitMiddleware:
    """Count API requests by token, person or address."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        try:
            if request.path.startswith(MACHINE_PREFIXES):
                _count_machine(request)
            elif request.path.startswith(API_PREFIX):
                is_log = OPTUNA_LOG.match(request.path) is not None
                (optuna_throttle if is_log else api_throttle).hit(_caller(request))
        except SlipwayError as error:
            return error_response(request, error)
        return self.get_response(request)


def _caller(request: HttpRequest) -> str:
    """Return the rate limit key: the token, the person, or the address."""
    try:
        principal = principal_of(request)
    except Unauthenticated:
        principal = None
    return principal.key if principal else client_network(request)


def _count_machine(request: HttpRequest) -> None:
    """Count a machine by its token, unverified. The gate verifies it later."""
    secret = bearer_of(request.headers.get("Authorization", ""))
    shapes = (has_node_shape, has_gateway_shape, has_hub_shape, has_workload_shape)
    if any(has_shape(secret) for has_shape in shapes):
        agent_throttle.hit(hash_of(secret)[:32])
    else:
        api_throttle.hit(client_network(request))


class IdempotencyMiddleware:
    """Runs a POST with an Idempotency-Key in one transaction with its record."""

    def __init__(self, get_response: GetResponse) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.method != "POST" or not request.path.startswith(API_PREFIX):
            return self.get_response(request)
        if request.path.startswith(MACHINE_PREFIXES):  # their requests are idempotent
            return self.get_response(request)
        try:
            key = idempotency.key_of(request)
            principal = principal_of(request) if key else None
            # Uploads stream their bodies and handle the key themselves.
            streams = is_upload(request.method, request.path, request.content_type or "")
            if key is None or principal is None or streams:
                return self.get_response(request)
            return self._once(request, principal.key, key)
        except DatabaseFault as error:  # mainly of the commit
            return unexpected(request, error)
        except RequestDataTooBig:
            return error_response(request, body_too_large())
        except SlipwayError as error:
            return error_response(request, error)

    def _once(self, request: HttpRequest, principal: str, key: str) -> HttpResponse:
        fingerprint = idempotency.fingerprint_of(request, request.body)
        with transaction.atomic():
            record, fresh = idempotency.claim(principal, key, fingerprint)
            if not fresh:
                # Check the gate first: a caller that lost access must not read the stored response.
                answer_behind_the_gate(request, idempotency.replay(record))
                return self.get_response(request)
            response = self.get_response(request)
            idempotency.keep_or_undo(record, response)
            return response
