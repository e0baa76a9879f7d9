"""User code of one project, as a job, against another project and the installation."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.security.isolation.arena import SMOKE, Arena, Neighbour, arena_at
from tests.security.isolation.attacks import (
    ATTACKS,
    LANDLOCK,
    LEVELS,
    NAMESPACES,
    OFFLINE,
    OPEN,
    ROOTLESS,
    SCOPES,
    WAKING,
)
from workers.launcher.confinement import landlock_version

Findings = dict[str, dict[str, Any]]
# Where a container sees the socket that wakes the agent.
WAKING_SOCKET = "/slipway/shared/bell"


def is_open(outcome: str, *, offline: bool = False) -> bool:
    """Tell whether an attack succeeds on this machine, by its outcome in the table."""
    if outcome == OFFLINE:
        return not offline
    if outcome == SCOPES and offline:
        return False
    if outcome in (LANDLOCK, SCOPES):
        return landlock_version() < (1 if outcome == LANDLOCK else 6)
    return outcome in (OPEN, WAKING)


def check(level: str, findings: Findings, *, offline: bool = False) -> None:
    """Compare what happened with the table."""
    wrong: dict[str, Any] = {}
    for attack in ATTACKS:
        result = findings[attack.name]
        succeeded = bool(result["seen"] or result["done"])
        outcome = attack.outcome(level)
        expected = is_open(outcome, offline=offline)
        if outcome == WAKING:
            expected &= result["done"] == [f"connect to {WAKING_SOCKET}"]
        if succeeded != expected or result["error"]:
            wrong[attack.name] = result
    assert not wrong, f"otherwise than the table says: {json.dumps(wrong, indent=1)}"


@pytest.fixture(
    scope="module",
    # `make test` shows the level that this machine gives, `make test-slow` all.
    params=[
        level if level == SMOKE else pytest.param(level, marks=pytest.mark.slow) for level in LEVELS
    ],
)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    made = arena_at(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module")
def neighbours(arena: Arena) -> list[Neighbour]:
    """One that has ended in the warm process from which others are forked, and two that live."""
    return [arena.neighbour("leave"), arena.neighbour(), arena.neighbour(warm=False)]


@pytest.mark.thorough
@pytest.mark.torch
def test_a_job_started_cold(arena: Arena, neighbours: list[Neighbour]) -> None:
    check(arena.level, arena.attack(neighbours))


@pytest.mark.thorough
@pytest.mark.torch
def test_forked_from_a_warm_process(arena: Arena, neighbours: list[Neighbour]) -> None:
    check(arena.level, arena.attack(neighbours, warm="torch"))


@pytest.mark.slow
@pytest.mark.torch
def test_without_a_network(arena: Arena, neighbours: list[Neighbour]) -> None:
    if arena.level not in (NAMESPACES, ROOTLESS):
        pytest.skip("such a node refuses tasks of projects without a network")
    check(arena.level, arena.attack(neighbours, network="platform"), offline=True)
