"""The contract of every provisioner.

Its agents find no portal here, and try to join until their machine is released.
"""

import secrets

import pytest

from portal.compute.provisioners import (
    MachineOrder,
    MachinePhase,
    MachineReport,
    Provisioner,
    ProvisionerRefused,
)
from portal.compute.resources import Amount
from tests.processes import wait_for

WITHIN_S = 60.0


def order_of(name: str = "") -> MachineOrder:
    """Return an order, with a new name unless one is given."""
    return MachineOrder(
        name=name or f"gpu-{secrets.token_hex(5)}",
        amount=Amount(500, 256 * 2**20),
        gpu_model="",
        labels=(("node-group", "gpu"), ("zone", "a b'c")),
        join_token="slj_x",
    )


def machine(provisioner: Provisioner, name: str) -> MachineReport | None:
    """Return the report on one machine that exists, None for one that is gone."""
    report = provisioner.look().get(name)
    return None if report is None or report.phase is MachinePhase.GONE else report


def release(provisioner: Provisioner, handle: str, name: str) -> None:
    """Release a machine until it is gone, as the control worker does."""

    def is_gone() -> bool:
        if machine(provisioner, name) is None:
            return True
        provisioner.release(handle)
        return False

    wait_for(is_gone, "end of the machine", within_s=WITHIN_S)


class ProvisionerContract:
    """Tests of a provisioner that makes at most two machines."""

    def test_an_order_that_comes_twice_makes_one_machine(self, provisioner: Provisioner) -> None:
        order = order_of()
        handle = provisioner.make(order)
        assert provisioner.make(order) == handle
        report = machine(provisioner, order.name)
        assert report is not None
        assert (report.name, report.handle) == (order.name, handle)
        assert report.phase in (MachinePhase.STARTING, MachinePhase.RUNNING)
        assert len(provisioner.look()) == 1
        release(provisioner, handle, order.name)

    def test_a_released_machine_is_gone_and_may_be_released_again(
        self, provisioner: Provisioner
    ) -> None:
        order = order_of()
        handle = provisioner.make(order)
        release(provisioner, handle, order.name)
        provisioner.release(handle)
        assert machine(provisioner, order.name) is None

    def test_a_machine_of_a_new_name_is_another_one(self, provisioner: Provisioner) -> None:
        first, second = order_of(), order_of()
        handles = provisioner.make(first), provisioner.make(second)
        assert handles[0] != handles[1]
        assert set(provisioner.look()) >= {first.name, second.name}
        for handle, order in zip(handles, (first, second), strict=True):
            release(provisioner, handle, order.name)

    def test_more_machines_than_there_may_be_are_refused_with_a_reason(
        self, provisioner: Provisioner
    ) -> None:
        orders = [order_of(), order_of()]
        handles = [provisioner.make(order) for order in orders]
        with pytest.raises(ProvisionerRefused, match=r"\w+ \w+ \w+"):
            provisioner.make(order_of())
        for handle, order in zip(handles, orders, strict=True):
            release(provisioner, handle, order.name)

    def test_nothing_is_known_of_a_machine_that_was_never_made(
        self, provisioner: Provisioner
    ) -> None:
        assert provisioner.look() == {}
        provisioner.release("i-0123456789abcdef0")
        assert provisioner.output("i-0123456789abcdef0") == ""
