"""A place for notebooks: one machine, one tier."""

import pytest

from portal.notebooks.wiring import NOTEBOOK
from portal.workloads.ports import register_kind
from tests.personas import Api, Personas
from tests.portal.notebook_servers.servers import Desk
from tests.portal.workloads.machines import Machine, make_machine, make_tier


@pytest.fixture(autouse=True)
def _kind() -> None:
    register_kind(NOTEBOOK)


@pytest.fixture
def machine(people: Personas) -> Machine:
    """A machine of four CPUs, and the tier `small`: one CPU, 1 GiB, 0.36 USD an hour."""
    made = make_machine("lab")
    make_tier("small", nano_usd_per_hour=360_000_000)
    return made


@pytest.fixture
def bob(people: Personas) -> Api:
    """Bob, who contributes to the project vision."""
    return Api.of(people.bob)


@pytest.fixture
def desk(bob: Api, machine: Machine) -> Desk:
    """Bob's notebooks, the machine that runs them and the Hub that opens them."""
    return Desk(bob, machine)
