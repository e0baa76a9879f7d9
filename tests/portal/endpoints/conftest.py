"""A place to serve in: one machine, one tier, models that a folder would hold, one gateway."""

from collections.abc import Iterator

import pytest

from portal.endpoints import ports
from portal.endpoints.ports import register_judge, register_models
from portal.endpoints.services.gateways import admit_gateway
from tests.personas import Api, Personas
from tests.portal.endpoints.serving import GatewayClient, Judge, Lab, Models
from tests.portal.workloads.machines import make_machine, make_tier


@pytest.fixture(autouse=True)
def models() -> Iterator[Models]:
    """The models of the project vision: `digits` in versions 1 to 9."""
    before = ports.models()
    source = Models()
    register_models(source)
    yield source
    register_models(before)


@pytest.fixture
def judge() -> Iterator[Judge]:
    """A judge of quality that finds what a test lets it find."""
    before = ports.judge()
    made = Judge()
    register_judge(made)
    yield made
    register_judge(before)


@pytest.fixture
def lab(people: Personas) -> Lab:
    """Bob serves in the project vision, on a machine with places for sixteen replicas."""
    machine = make_machine("lab", cpus=16, gib=64)
    make_tier("small", nano_usd_per_hour=3_600_000_000)
    return Lab(Api.of(people.bob), machine)


@pytest.fixture
def gateway(people: Personas) -> GatewayClient:
    """A gateway of this installation."""
    return GatewayClient(admit_gateway(name="gateway").secret)
