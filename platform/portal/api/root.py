"""The REST API, assembled."""

from typing import Any

import orjson
from django.http import HttpRequest
from django.views.decorators.http import require_safe
from ninja import NinjaAPI
from ninja.openapi.docs import Swagger
from ninja.openapi.schema import OpenAPISchema
from ninja.renderers import BaseRenderer

from portal.api import problems
from portal.api.bodies import StrictParser
from portal.api.routing import require_gates
from portal.api.v1 import account, audit, files, jobs, members, projects, secrets, teams, users


class OrjsonRenderer(BaseRenderer):
    """Renders answers with orjson."""

    media_type = "application/json"

    def render(self, request: HttpRequest, data: Any, *, response_status: int) -> bytes:
        """Return the JSON of `data`."""
        return orjson.dumps(data, default=str)


class PortalApi(NinjaAPI):
    """Describes itself once: the operations do not change while a process runs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._described: OpenAPISchema | None = None

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        """Return the OpenAPI description; the one without options is made on first use."""
        if any(options.values()):
            return super().get_openapi_schema(**options)
        if self._described is None:
            self._described = super().get_openapi_schema()
        return self._described


api = PortalApi(
    title="Slipway",
    version="1",
    description=(
        "The REST API of Slipway. Send `Authorization: Bearer <token>`; make a token under "
        "Settings → API tokens. Errors are problem+json (RFC 9457) with a code, the field at fault "
        "and the next step. Every POST takes an `Idempotency-Key`: the same key gives the same "
        "result for 24 hours. Lists are paged by cursor."
    ),
    urls_namespace="api",
    renderer=OrjsonRenderer(),
    parser=StrictParser(),
    docs=Swagger(settings={"persistAuthorization": False, "tryItOutEnabled": True}),
    docs_decorator=require_safe,
)
problems.register(api)
for module in (account, projects, teams, members, secrets, files, jobs, audit, users):
    api.add_router("", module.router)
require_gates(api)
