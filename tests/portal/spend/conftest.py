"""Kinds of workload and a machine to meter."""

from collections.abc import Iterator

import pytest

from portal.compute.models import Node
from tests.personas import Personas
from tests.portal.workloads.machines import make_machine, stand_in_kinds


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    with stand_in_kinds():
        yield


@pytest.fixture
def node(people: Personas) -> Node:
    """A machine of four CPUs with 16 GiB."""
    return make_machine("lab").node
