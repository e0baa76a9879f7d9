"""Information about the gateway and its endpoints: health, metadata, OpenAPI."""

from typing import Any, Final

import orjson

from slipway.schemas.serving import Datatype, FieldSpec, Signature
from slipway.version import __version__
from workers.gateway import answers
from workers.gateway.routing import Endpoint
from workers.gateway.routing_table import RoutingTable

_JSON_TYPES: Final = {
    Datatype.BOOL: "boolean",
    Datatype.BYTES: "string",
    Datatype.FP16: "number",
    Datatype.FP32: "number",
    Datatype.FP64: "number",
}


def liveness(_table: RoutingTable) -> bytes:
    """Return a response that shows that the process is alive."""
    return answers.answer(200, b"ok\n", b"text/plain; charset=utf-8")


def live(_table: RoutingTable) -> bytes:
    """Return the liveness response of the Open Inference Protocol."""
    return answers.json_answer({"live": True})


def gateway_ready(table: RoutingTable) -> bytes:
    """Return 200 if there is a snapshot, from the portal or from the disk, else 503."""
    return answers.json_answer({"ready": table.is_loaded}, 200 if table.is_loaded else 503)


def server(_table: RoutingTable) -> bytes:
    """Return the metadata of the server."""
    return answers.json_answer(
        {"name": "slipway", "version": __version__, "extensions": ["binary_tensor_data"]}
    )


def ping(endpoint: Endpoint) -> bytes:
    """Return the readiness response, as MLflow and SageMaker expect it: 200 or 503."""
    return answers.answer(200 if endpoint.is_ready else 503, b"\n")


def ready(endpoint: Endpoint) -> bytes:
    """Return the readiness response of the Open Inference Protocol."""
    is_ready = endpoint.is_ready
    values = {"name": endpoint.route.name, "ready": is_ready}
    return answers.json_answer(values, 200 if is_ready else 503)


def _signature(endpoint: Endpoint) -> Signature:
    current = endpoint.current
    return current.signature if current else Signature()


def model(endpoint: Endpoint) -> bytes:
    """Return the metadata of the model in the format of the Open Inference Protocol."""
    signature, current = _signature(endpoint), endpoint.current
    return answers.json_answer(
        {
            "name": endpoint.route.name,
            "versions": sorted(
                {revision.route.model_version for revision in endpoint.revisions.values()}
            ),
            "platform": current.platform if current else "",
            "inputs": [_tensor(spec) for spec in signature.inputs],
            "outputs": [_tensor(spec) for spec in signature.outputs],
        }
    )


def _tensor(spec: FieldSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype.value, "shape": spec.shape}


def endpoint(endpoint: Endpoint) -> bytes:
    """Return an endpoint's metadata: its revisions, signature and routes."""
    route = endpoint.route
    name = route.name
    return answers.json_answer(
        {
            "name": name,
            "ready": endpoint.is_ready,
            "revisions": [
                {
                    "id": revision.route.id,
                    "model": revision.route.model,
                    "model_version": revision.route.model_version,
                    "weight": revision.route.weight,
                    "replicas_ready": len(revision.ready),
                }
                for revision in endpoint.revisions.values()
            ],
            "signature": _signature(endpoint).model_dump(mode="json"),
            "predict": f"/v1/{name}/predict",
            "invocations": f"/v1/{name}/invocations",
            "sagemaker": f"/endpoints/{name}/invocations",
            "open_inference": f"/v2/models/{name}",
            "openapi": f"/v1/{name}/openapi.json",
        }
    )


def _element(spec: FieldSpec) -> dict[str, Any]:
    element: dict[str, Any] = {"type": _JSON_TYPES.get(spec.datatype, "integer")}
    if not spec.required:
        element["type"] = [element["type"], "null"]
    return element


def _nested(spec: FieldSpec) -> dict[str, Any]:
    element = _element(spec)
    for length in reversed(spec.shape):
        element = {"type": "array", "items": element}
        if length > 0:
            element["minItems"] = element["maxItems"] = length
    return element


def _request_schema(signature: Signature) -> dict[str, Any]:
    specs = signature.inputs
    required = [spec.name for spec in specs if spec.required]
    if not specs:
        anything: dict[str, Any] = {"type": "array", "items": {}}
        return {"type": "object", "properties": {"inputs": anything}, "required": ["inputs"]}
    by_name = {
        "type": "object",
        "properties": {spec.name: _nested(spec) for spec in specs},
        "required": required,
    }
    if signature.kind == "tensors":
        inputs = {"anyOf": [by_name, _nested(specs[0])]} if len(specs) == 1 else by_name
        return {"type": "object", "properties": {"inputs": inputs}, "required": ["inputs"]}
    row = {
        "type": "object",
        "properties": {spec.name: _element(spec) for spec in specs},
        "required": required,
    }
    split = {
        "type": "object",
        "properties": {
            "columns": {"type": "array", "items": {"enum": [spec.name for spec in specs]}},
            "data": {"type": "array", "items": {"type": "array"}},
        },
        "required": ["columns", "data"],
    }
    ways = {"dataframe_records": {"type": "array", "items": row}, "dataframe_split": split}
    return {
        "oneOf": [
            {"type": "object", "properties": {way: schema}, "required": [way]}
            for way, schema in (ways | {"inputs": by_name}).items()
        ]
    }


def openapi(endpoint: Endpoint) -> bytes:
    """Return the endpoint's OpenAPI description, generated from the signature of its model."""
    name, signature = endpoint.route.name, _signature(endpoint)
    problem = {
        "description": "Error and next step",
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/P"}}},
    }
    predictions = {
        "type": "object",
        "properties": {"predictions": {}},
        "required": ["predictions"],
    }
    operation = {
        "summary": "Predict",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Request"}}},
        },
        "responses": {
            "200": {
                "description": "Predictions, one row per input row",
                "content": {"application/json": {"schema": predictions}},
            },
            **{str(status): problem for status in (400, 401, 403, 413, 415, 429, 500, 502, 503)},
        },
    }
    current = endpoint.current
    described = {
        "openapi": "3.1.0",
        "info": {"title": name, "version": current.route.model_version if current else "0"},
        "security": [{"key": []}],
        "paths": {
            f"/v1/{name}/predict": {"post": operation | {"operationId": "predict"}},
            f"/v1/{name}/invocations": {"post": operation | {"operationId": "invocations"}},
        },
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Request": _request_schema(signature),
                "P": {
                    "type": "object",
                    "properties": {
                        "status": {"type": "integer"},
                        "code": {"type": "string"},
                        "detail": {"type": "string"},
                        "next_step": {"type": "string"},
                        "errors": {"type": "array", "items": {"type": "object"}},
                    },
                },
            },
        },
    }
    return answers.answer(200, orjson.dumps(described))
