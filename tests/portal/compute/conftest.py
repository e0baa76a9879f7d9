"""An administrator, and the kinds of workload that run on what the tests set up."""

import pytest

from tests.personas import Api, Personas
from tests.portal.workloads.machines import register_kinds


@pytest.fixture(autouse=True)
def _kinds() -> None:
    register_kinds()


@pytest.fixture
def root(people: Personas) -> Api:
    """The API as the administrator sees it."""
    return Api.of(people.root)
