"""Types of the input columns of an endpoint's models, for tables of its predictions."""

from typing import Any

from portal.endpoints.models import Endpoint
from portal.registry.models import VersionRecord

_TYPES = {
    "BOOL": "bool",
    "FP32": "float",
    "FP64": "double",
    "BYTES": "string",
    **{
        f"{sign}INT{bits}": f"{sign.lower()}int{bits}"
        for sign in ("", "U")
        for bits in (8, 16, 32, 64)
    },
}


def signatures_of(endpoint: Endpoint) -> dict[str, Any]:
    """Return the signatures of revisions, in the gateways' format."""
    return dict(endpoint.revisions.values_list("pk", "signature"))


def column_types(endpoint: Endpoint) -> dict[str, str]:
    """Return types by column, of the newest revision that has it, including `datetime`.

    Types are those of `slipway.schemas.tables`.
    """
    types: dict[str, str] = {}
    revisions = list(endpoint.revisions.order_by("number").defer("served"))
    for revision in revisions:
        signature = revision.signature or {}
        if signature.get("kind") != "columns":
            continue
        for column in signature.get("inputs") or []:
            kind = _TYPES.get(str(column.get("datatype")))
            if kind is not None:
                types[str(column["name"])] = kind
    records = VersionRecord.objects.filter(
        line__project=endpoint.project_id,
        line__name__in={revision_row.model for revision_row in revisions},
    )
    for record in records.order_by("pk"):
        for column in (record.signature or {}).get("inputs") or []:
            # Gateways accept a datetime as text.
            if column.get("type") == "datetime" and types.get(column.get("name")) == "string":
                types[column["name"]] = "datetime"
    return types
