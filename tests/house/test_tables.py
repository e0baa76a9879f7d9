"""Tables that several processes share name things that exist in all of them."""

import importlib.util
from pathlib import Path

import pytest

import workers
from portal.workloads.ports import registered_kinds
from slipway.schemas.backends import BACKENDS, DEFAULT_BACKEND
from workers.launcher.platform_programs import (
    MODULE_OF_COMMAND,
    PLATFORM_PROGRAMS,
    READABLE_PACKAGES,
)
from workers.node_agent.backends.registry import IMPLEMENTATIONS, backend_class

_PROGRAMS = list(PLATFORM_PROGRAMS.values())


def test_each_back_end_has_an_implementation_of_its_name() -> None:
    assert list(IMPLEMENTATIONS) == list(BACKENDS)
    assert all(backend_class(name).name == name for name in BACKENDS)
    assert DEFAULT_BACKEND in BACKENDS


def test_kinds_of_workload_name_programs_that_nodes_know() -> None:
    kinds = registered_kinds()
    assert {"job", "notebook", "replica"} <= set(kinds)
    assert {kind.warm for kind in kinds.values() if kind.warm} <= set(PLATFORM_PROGRAMS)


@pytest.mark.parametrize("program", _PROGRAMS, ids=lambda program: program.name)
def test_a_program_of_the_platform_can_be_started_and_read_by_tasks(program: object) -> None:
    command, module = program.command, program.module  # type: ignore[attr-defined]
    assert bool(command) == bool(module)
    if command:
        assert MODULE_OF_COMMAND[command] == module
        assert importlib.util.find_spec(f"{module}.__main__") is not None
        assert module.removeprefix("workers.") in READABLE_PACKAGES
    for package in READABLE_PACKAGES:
        assert (Path(workers.__path__[0]) / package / "__init__.py").is_file()
