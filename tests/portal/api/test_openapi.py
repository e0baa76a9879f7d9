"""The public surface of the API: a checked-in snapshot, complete and in words."""

import json
import re
from pathlib import Path
from typing import Any

from portal.api.root import api
from tests.routes import every_pattern

SNAPSHOT = Path(__file__).parents[2] / "openapi.json"
_VERBS = re.compile(
    "(accept|add|answer|append|archive|branch|call|cancel|clone|commit|compare|cordon|create|decide|delete|"
    "disable|download|drain|edit|empty|enable|export|extend|follow|get|invoke|link|list|move|override|pause|plan|preview|"
    "promote|quote|record|remove|repeat|restore|resume|revoke|roll|run|save|search|set|share|snooze|start|stop|"
    "tag|take|uncordon|undelete|update|upload|verify|whoami)(_|$)"
)
REFRESH = "pytest tests/portal/api/test_openapi.py --refresh"


def openapi() -> dict[str, Any]:
    """Return the API's description as clients read it."""
    schema: dict[str, Any] = json.loads(json.dumps(api.get_openapi_schema(), default=str))
    return schema


def written(schema: dict[str, Any]) -> str:
    """Return the description as it is checked in."""
    return json.dumps(schema, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def test_the_openapi_snapshot_is_what_the_api_says(refresh: bool) -> None:
    now = written(openapi())
    if refresh:
        SNAPSHOT.write_text(now, encoding="utf-8")
    stored = SNAPSHOT.read_text(encoding="utf-8")
    assert now == stored, f"the public surface changed; if on purpose, run `{REFRESH}`"


def test_the_description_is_openapi_3_1_and_covers_every_operation() -> None:
    schema = openapi()
    assert schema["openapi"].startswith("3.1")
    described = {(path, verb.upper()) for path, verbs in schema["paths"].items() for verb in verbs}
    served = {
        (route.template, verb)
        for route in every_pattern()
        if route.name.startswith("api:")  # agents have an API of their own
        for operation in route.operations
        for verb in operation.methods
    }
    assert described == served


def test_operation_ids_are_unique_names_that_begin_with_a_verb() -> None:
    ids = [
        operation["operationId"]
        for verbs in openapi()["paths"].values()
        for operation in verbs.values()
    ]
    assert len(set(ids)) == len(ids), "two operations share a name"
    assert not [name for name in ids if not _VERBS.match(name)]


def test_every_operation_is_described_for_people() -> None:
    silent = [
        f"{verb} {path}"
        for path, verbs in openapi()["paths"].items()
        for verb, operation in verbs.items()
        if not operation.get("description") or not operation.get("tags")
    ]
    assert not silent
