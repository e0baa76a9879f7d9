"""The contract of provisioners, kept by local processes and by an emulator of Amazon EC2."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from portal.compute.adapters.provisioners.ec2.provisioner import Ec2Provisioner
from portal.compute.adapters.provisioners.ec2.settings import Ec2Settings
from portal.compute.adapters.provisioners.ec2.user_data import user_data
from portal.compute.adapters.provisioners.local import LocalProvisioner, end_machines
from portal.compute.provisioners import (
    MachinePhase,
    Provisioner,
    ProvisionerAway,
    ProvisionerRefused,
)
from tests.integration.node_groups.emulator import emulator, prepare_account
from tests.integration.node_groups.provisioner_contract import (
    ProvisionerContract,
    machine,
    order_of,
    release,
)
from tests.ports import free_ports
from tests.processes import wait_for
from workers.node_agent.settings import read_settings

pytestmark = pytest.mark.integration
__all__ = ["emulator"]


def no_portal() -> str:
    """Return the address of a portal that does not exist."""
    return f"http://127.0.0.1:{free_ports(1)[0]}"


class TestEc2Provisioner(ProvisionerContract):
    client: Any

    @pytest.fixture
    def provisioner(self, emulator: str, monkeypatch: pytest.MonkeyPatch) -> Ec2Provisioner:
        """A group of a launch template, in an account without instances."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        self.client = prepare_account(emulator)
        return Ec2Provisioner("ngrp_1", settings(emulator), url="https://slipway.example.org")

    def test_more_machines_than_there_may_be_are_refused_with_a_reason(
        self, provisioner: Provisioner
    ) -> None:
        """The emulator has no limits; an unknown launch template is refused like one."""
        assert isinstance(provisioner, Ec2Provisioner)
        changed = provisioner._settings.model_copy(update={"launch_template": "nor-such"})
        other = Ec2Provisioner("ngrp_1", changed, url="https://slipway.example.org")
        with pytest.raises(ProvisionerRefused, match=r"\w+ \w+ \w+.*InvalidLaunchTemplate"):
            other.make(order_of())

    def test_an_instance_has_tags_and_user_data_that_joins_it(
        self, provisioner: Provisioner
    ) -> None:
        order = order_of()
        handle = provisioner.make(order)
        (reservation,) = self.client.describe_instances(InstanceIds=[handle])["Reservations"]
        (instance,) = reservation["Instances"]
        tags = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
        assert tags["slipway:group"] == "ngrp_1"
        assert tags["slipway:machine"] == tags["Name"] == order.name
        assert instance["InstanceType"] == "g5.xlarge"
        assert instance["ClientToken"] == order.name
        attribute = self.client.describe_instance_attribute(InstanceId=handle, Attribute="userData")
        script = base64.b64decode(attribute["UserData"]["Value"]).decode()
        assert f"--name {order.name}" in script
        assert order.join_token in script
        assert "'zone=a b'\"'\"'c'" in script

    def test_a_spot_group_requests_instances_that_end_when_they_are_interrupted(
        self, provisioner: Provisioner, emulator: str
    ) -> None:
        chosen = settings(emulator).model_copy(update={"spot": True})
        spot = Ec2Provisioner("ngrp_1", chosen, url="https://slipway.example.org")
        order = order_of()
        sent = spot._request(order)["InstanceMarketOptions"]
        assert sent["MarketType"] == "spot"
        assert sent["SpotOptions"]["InstanceInterruptionBehavior"] == "terminate"
        handle = spot.make(order)
        (reservation,) = self.client.describe_instances(InstanceIds=[handle])["Reservations"]
        assert reservation["Instances"][0]["InstanceLifecycle"] == "spot"
        # Amazon takes it back.
        self.client.terminate_instances(InstanceIds=[handle])
        wait_for(lambda: machine(spot, order.name) is None, "end", within_s=60)
        # Others of the group are on demand.
        assert "InstanceMarketOptions" not in provisioner._request(order)  # type: ignore[attr-defined]

    def test_user_data_starts_the_agent_with_a_private_token(self, tmp_path: Path) -> None:
        """The script runs in a shell, with a systemd-run that notes its arguments."""
        fake = tmp_path / "bin" / "systemd-run"
        fake.parent.mkdir()
        fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', "utf-8")
        fake.chmod(0o755)
        folder = tmp_path / "slipway"
        chosen = settings("http://127.0.0.1:1").model_copy(update={"folder": str(folder)})
        script = user_data(order_of("gpu-1"), chosen, url="https://slipway.example.org")
        done = subprocess.run(
            ["/bin/sh"],
            input=script,
            text=True,
            capture_output=True,
            check=True,
            env={"PATH": f"{fake.parent}:/usr/bin:/bin"},
        )
        arguments = done.stdout.splitlines()
        assert "zone=a b'c" in arguments
        read = read_settings(arguments[arguments.index("workers.node_agent") + 1 :])
        assert (read.name, read.labels["node-group"]) == ("gpu-1", "gpu")
        assert read.token_file is not None
        assert read.token_file.read_text("ascii") == "slj_x"
        assert read.token_file.stat().st_mode & 0o077 == 0

    def test_an_instance_of_another_group_is_not_seen(
        self, provisioner: Provisioner, emulator: str
    ) -> None:
        provisioner.make(order_of())
        other = Ec2Provisioner("ngrp_2", settings(emulator), url="https://slipway.example.org")
        assert other.look() == {}

    def test_a_region_that_does_not_answer_is_away(self, provisioner: Provisioner) -> None:
        away = settings(f"http://127.0.0.1:{free_ports(1)[0]}")
        unreachable = Ec2Provisioner("ngrp_1", away, url="https://slipway.example.org")
        with pytest.raises(ProvisionerAway, match="Could not connect"):
            unreachable.look()
        with pytest.raises(ProvisionerAway):
            unreachable.make(order_of())


def settings(endpoint: str) -> Ec2Settings:
    """Return settings of a group at the emulator."""
    return Ec2Settings(
        region="eu-central-1",
        launch_template="slipway-gpu",
        instance_type="g5.xlarge",
        endpoint=endpoint,
    )


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
        record.unlink()
        assert end_machines(tmp_path) == 1
        release(provisioner, handle, order.name)
