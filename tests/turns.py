"""Each operation is asked some of many hostile values, and over all operations all of them are.

What refuses them is the same code for nearly all operations, so asking every one for everything
mostly repeats itself. `make test-slow` asks all, by the variable TESTS_ASK_ALL.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload
from zlib import crc32

import pytest

_ALL = "TESTS_ASK_ALL"
Value = TypeVar("Value")


def thorough_after(count: int, cases: Sequence[Any]) -> list[Any]:
    """Parameters of a test, of which only the first ones run in the gate.

    A case is a single value or the tuple of a test's parameters.
    """
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else (case,)),
            marks=[pytest.mark.thorough] if place >= count else [],
        )
        for place, case in enumerate(cases)
    ]


def asked_all() -> bool:
    """Whether this run takes its time."""
    return bool(os.environ.get(_ALL))


@overload
def in_turns(values: Mapping[str, Value], whose: str, *, one_in: int) -> Mapping[str, Value]: ...
@overload
def in_turns(values: Sequence[Value], whose: str, *, one_in: int) -> Sequence[Value]: ...
def in_turns(
    values: Mapping[str, Value] | Sequence[Value], whose: str, *, one_in: int
) -> Mapping[str, Value] | Sequence[Value]:
    """Return one value in so many; which ones changes with whose turn it is."""
    if asked_all():
        return values
    first = crc32(whose.encode()) % one_in
    if isinstance(values, Mapping):
        return {name: values[name] for name in list(values)[first::one_in]}
    return values[first::one_in]
