"""What a request says counts as it is written: no truth is a number, no text is either."""

from collections.abc import Iterator
from typing import Any

import pytest

from slipway.schemas.base import RequestSchema
from tests.personas import Api, Personas, json_of
from tests.portal.workloads.machines import make_tier
from tests.routes import every_pattern

_ASKED = ("int", "float", "bool")
# What of a schema says something else than which values it takes.
_ASIDE = frozenset({"metadata", "serialization", "config"})


def _requests() -> list[type[RequestSchema]]:
    every_pattern()  # which loads all of them
    schemas: set[type[RequestSchema]] = set()
    waiting = [RequestSchema]
    while waiting:
        below = set(waiting.pop().__subclasses__()) - schemas
        schemas |= below
        waiting += below
    return sorted(schemas, key=lambda schema: f"{schema.__module__}.{schema.__name__}")


def _lax(schema: Any, place: str = "") -> Iterator[str]:
    """Name what Pydantic would turn into a number or a truth."""
    if isinstance(schema, dict):
        if schema.get("type") in _ASKED and not schema.get("strict"):
            yield f"{place or 'itself'}: {schema['type']}"
        for name, inner in schema.items():
            if name not in _ASIDE:
                yield from _lax(inner, f"{place}.{name}" if place else str(name))
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _lax(inner, place)


@pytest.mark.parametrize("schema", _requests(), ids=lambda schema: schema.__name__)
def test_nothing_is_turned_into_a_number(schema: type[RequestSchema]) -> None:
    assert not list(_lax(schema.__pydantic_core_schema__))


@pytest.mark.parametrize("wrong", [False, "7", 7.5])
def test_a_price_is_a_whole_number(people: Personas, wrong: object) -> None:
    make_tier("small", nano_usd_per_hour=1_000)
    root = Api.of(people.root)
    refused = root.patch("tiers/small", {"nano_usd_per_hour": wrong})
    assert (refused.status_code, json_of(refused)["field"]) == (422, "nano_usd_per_hour")
    assert json_of(root.get("tiers/small"))["nano_usd_per_hour"] == 1_000


def test_a_whole_number_may_be_written_with_a_point(people: Personas) -> None:
    root = Api.of(people.root)
    tier = {"slug": "two", "name": "Two", "nano_usd_per_hour": 7.0}
    made = root.post("tiers", tier | {"resources": {"cpu_millis": 2e3, "memory_bytes": 2.0**30}})
    assert made.status_code == 201
    shown = json_of(made)
    assert (shown["resources"]["cpu_millis"], shown["nano_usd_per_hour"]) == (2000, 7)
