"""The contract of provisioners, kept by local processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from portal.compute.adapters.provisioners.local import LocalProvisioner
from portal.compute.provisioners import MachinePhase, Provisioner
from tests.integration.node_groups.provisioner_contract import (
    ProvisionerContract,
    machine,
    order_of,
    release,
)
from tests.ports import free_ports
from tests.processes import wait_for

pytestmark = pytest.mark.integration


def no_portal() -> str:
    """Return the address of a portal that does not exist."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


class TestLocalProvisioner(ProvisionerContract):
    @pytest.fixture
    def provisioner(self, tmp_path: Path) -> Iterator[Provisioner]:
        """A provisioner of two machines, which are gone afterwards."""
        made = LocalProvisioner(tmp_path / "group", ("--url", no_portal()), 2)
        yield made
        for report in made.look().values():
            release(made, report.handle, report.name)

    def test_the_console_says_why_a_machine_does_not_join(self, provisioner: Provisioner) -> None:
        order = order_of()
        handle = provisioner.make(order)
        wait_for(
            lambda: "does not respond yet" in provisioner.output(handle), "reason", within_s=60
        )
        release(provisioner, handle, order.name)

    def test_an_agent_that_was_started_before_a_crash_is_found_again(
        self, provisioner: Provisioner, tmp_path: Path
    ) -> None:
        order = order_of()
        handle = provisioner.make(order)
        wait_for(lambda: provisioner.output(handle), "first line", within_s=60)
        record = tmp_path / "group" / order.name / "machine.json"
        before = record.read_text("ascii")
        record.unlink()
        assert provisioner.make(order) == handle
        assert record.read_text("ascii") == before
        report = machine(provisioner, order.name)
        assert report is not None
        assert report.phase is MachinePhase.RUNNING
        release(provisioner, handle, order.name)
