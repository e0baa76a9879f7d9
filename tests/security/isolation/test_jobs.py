"""User code of one project, as a job, against another project and the installation."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.security.isolation.arena import Arena, Neighbour, arena_at
from tests.security.isolation.attacks import (
    ATTACKS,
    LANDLOCK,
    LEVELS,
    OFFLINE,
    OPEN,
    SCOPES,
)
from workers.launcher.confinement import landlock_version

Findings = dict[str, dict[str, Any]]


def is_open(outcome: str, *, offline: bool = False) -> bool:
    """Tell whether an attack succeeds on this machine, by its outcome in the table."""
    if outcome == OFFLINE:
        return not offline
    if outcome in (LANDLOCK, SCOPES):
        return landlock_version() < (1 if outcome == LANDLOCK else 6)
    return outcome == OPEN


def check(level: str, findings: Findings, *, offline: bool = False) -> None:
    """Compare what happened with the table."""
    wrong: dict[str, Any] = {}
    for attack in ATTACKS:
        result = findings[attack.name]
        succeeded = bool(result["seen"] or result["done"])
        if succeeded != is_open(attack.outcome(level), offline=offline) or result["error"]:
            wrong[attack.name] = result
    assert not wrong, f"otherwise than the table says: {json.dumps(wrong, indent=1)}"


@pytest.fixture(scope="module", params=LEVELS)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    made = arena_at(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def neighbours(arena: Arena) -> list[Neighbour]:
    """One that has ended in the warm process from which others are forked, and two that live."""
    return [arena.neighbour("leave"), arena.neighbour(), arena.neighbour(warm=False)]


def test_cold(arena: Arena, neighbours: list[Neighbour]) -> None:
    check(arena.level, arena.attack(neighbours))


def test_warm(arena: Arena, neighbours: list[Neighbour]) -> None:
    check(arena.level, arena.attack(neighbours, warm="torch"))
