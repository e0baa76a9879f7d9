"""Additions to the OpenAPI description: operation ids, failures, the Idempotency-Key header."""

from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema
from ninja.operation import Operation

from portal.api.problems import CONTENT_TYPE
from slipway.schemas.problem import Problem

_REFERENCE = "#/components/schemas/{model}"
_FAILURE = {CONTENT_TYPE: {"schema": {"$ref": _REFERENCE.format(model=Problem.__name__)}}}
_FAILURES = {
    "4XX": {"description": "Refused: what happened, why, and the next step", "content": _FAILURE},
    "5XX": {
        "description": "An error of the server, or a component that is unavailable",
        "content": _FAILURE,
    },
}
_IDEMPOTENCY_KEY = {
    "in": "header",
    "name": "Idempotency-Key",
    "required": False,
    "description": "The same key gives the same result for 24 hours.",
    "schema": {"type": "string", "pattern": "^[!-~]{1,128}$"},
}


class PortalApi(NinjaAPI):
    """An API whose description is built once, because its operations never change at run time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._described: OpenAPISchema | None = None

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        """Return the OpenAPI description. The one without options is built on first use."""
        if any(options.values()):
            return _complete(super().get_openapi_schema(**options))
        if self._described is None:
            self._described = _complete(super().get_openapi_schema())
        return self._described

    def get_openapi_operation_id(self, operation: Operation) -> str:
        """Return the function's name, such as `create_job`. A test keeps the names unique."""
        return str(operation.view_func.__name__)


def _complete(schema: OpenAPISchema) -> OpenAPISchema:
    described = Problem.model_json_schema(ref_template=_REFERENCE, mode="serialization")
    schemas = schema["components"]["schemas"]
    schemas |= described.pop("$defs", {})
    schemas[Problem.__name__] = described
    for verbs in schema["paths"].values():
        for verb, operation in verbs.items():
            operation["responses"] |= _FAILURES
            if verb == "post":
                operation.setdefault("parameters", []).append(_IDEMPOTENCY_KEY)
    return schema
