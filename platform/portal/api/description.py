"""What the OpenAPI description says of every operation: its failures, its Idempotency-Key."""

from typing import Any

from ninja import NinjaAPI
from ninja.openapi.schema import OpenAPISchema

from portal.api.problems import CONTENT_TYPE
from slipway.schemas.problem import Problem

_REFERENCE = "#/components/schemas/{model}"
_FAILURE = {CONTENT_TYPE: {"schema": {"$ref": _REFERENCE.format(model=Problem.__name__)}}}
_FAILURES = {
    "4XX": {"description": "Refused: what happened, why, and the next step", "content": _FAILURE},
    "5XX": {
        "description": "Internal error, or a component that is unavailable",
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
    """Describes itself once: the operations do not change while a process runs."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._described: OpenAPISchema | None = None

    def get_openapi_schema(self, **options: Any) -> OpenAPISchema:
        """Return the OpenAPI description; the one without options is made on first use."""
        if any(options.values()):
            return _complete(super().get_openapi_schema(**options))
        if self._described is None:
            self._described = _complete(super().get_openapi_schema())
        return self._described


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
