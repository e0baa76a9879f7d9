"""Checks manifests against the OpenAPI schema of Kubernetes, as its official client ships it.

The client itself drops fields that it does not know, as a server does.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from kubernetes.client import models

_BASIC = {"str": str, "int": int, "bool": bool, "float": float, "object": object}


def faults_of(value: Any, kind: str, path: str = "") -> Iterator[str]:
    """Yield what a value of a manifest violates: unknown, missing or wrong fields."""
    if many := re.fullmatch(r"list\[(.+)\]", kind):
        if not isinstance(value, list):
            yield f"{path} is no list"
            return
        for place, item in enumerate(value):
            yield from faults_of(item, many[1], f"{path}[{place}]")
    elif mapping := re.fullmatch(r"dict\[str, (.+)\]", kind):
        if not isinstance(value, Mapping):
            yield f"{path} is no mapping"
            return
        for key, item in value.items():
            yield from faults_of(item, mapping[1], f"{path}.{key}")
    elif kind in _BASIC:
        if not isinstance(value, _BASIC[kind]) or (kind == "int" and isinstance(value, bool)):
            yield f"{path} must be {kind}, not {value!r}"
    else:
        yield from _faults_of_object(value, getattr(models, kind), path)


def _faults_of_object(value: Any, model: Any, path: str) -> Iterator[str]:
    fields = {
        name: (model.openapi_types[field], field) for field, name in model.attribute_map.items()
    }
    if not isinstance(value, Mapping):
        yield f"{path} is no object"
        return
    for name, item in value.items():
        if name not in fields:
            yield f"{path}.{name} is unknown"
        else:
            yield from faults_of(item, fields[name][0], f"{path}.{name}")
    # The constructor refuses what lacks a required field.
    try:
        model(**{fields[name][1]: item for name, item in value.items() if name in fields})
    except ValueError as error:
        yield f"{path}: {error}"
