"""What a schema refuses is said in words, never in a regular expression."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

import slipway.schemas
from portal.core.validation_messages import FORMS, describe_validation_error, validation_predicate
from slipway.schemas.registry import DatasetRef


def _patterns(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if schema.get("type") == "str" and isinstance(schema.get("pattern"), str):
            yield schema["pattern"]
        for value in schema.values():
            yield from _patterns(value)
    elif isinstance(schema, list | tuple):
        for value in schema:
            yield from _patterns(value)


def _models() -> Iterator[type[BaseModel]]:
    for module in pkgutil.iter_modules(slipway.schemas.__path__, "slipway.schemas."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, BaseModel):
                yield value


def test_every_pattern_of_a_schema_has_words() -> None:
    refused = {
        pattern for model in _models() for pattern in _patterns(model.__pydantic_core_schema__)
    }
    assert len(refused) > 10
    assert refused - FORMS.keys() == set()


def test_words_name_what_a_good_value_looks_like() -> None:
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(DatasetRef).validate_python("Digits")
    (fault,) = refused.value.errors()
    assert "such as digits:3" in describe_validation_error(fault)
    assert "^" not in validation_predicate(fault)
    with pytest.raises(ValidationError) as refused:
        TypeAdapter(int).validate_python("x")
    assert validation_predicate(refused.value.errors()[0]).startswith("should be a valid integer")
