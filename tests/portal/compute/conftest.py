"""An administrator, and the kinds of workload that run on what the tests set up."""

from collections.abc import Iterator

import pytest

from tests.personas import Api, Personas
from tests.portal.workloads.machines import stand_in_kinds


@pytest.fixture(autouse=True)
def _kinds() -> Iterator[None]:
    with stand_in_kinds():
        yield


@pytest.fixture
def root(people: Personas) -> Api:
    """The API as the administrator sees it."""
    return Api.of(people.root)
