"""The contract of provisioners, kept by containers on a real Docker engine."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from portal.compute.adapters.provisioners.docker_engine.container import (
    AGENT_MEMORY_BYTES,
    container_config,
)
from portal.compute.adapters.provisioners.docker_engine.kind import DockerProvisionerKind
from portal.compute.adapters.provisioners.docker_engine.provisioner import DockerProvisioner
from portal.compute.adapters.provisioners.docker_engine.settings import DockerGroupSettings
from portal.compute.provisioners import (
    MachineOrder,
    MachinePhase,
    Provisioner,
    ProvisionerAway,
    ProvisionerRefused,
)
from portal.compute.resources import Amount
from portal.core.errors import InvalidInput
from tests.integration.node_groups.node_image import Docker
from tests.integration.node_groups.provisioner_contract import (
    WITHIN_S,
    ProvisionerContract,
    machine,
    order_of,
    release,
)
from tests.processes import wait_for

pytestmark = [pytest.mark.docker, pytest.mark.thorough]
URL = "http://127.0.0.1:9"


def opened(socket: Path, image: str, group: str = "ngrp_1", **changes: Any) -> DockerProvisioner:
    """Return the provisioner of a group of at most two containers."""
    fields: dict[str, Any] = {"machines": 2, "network": "none"} | changes
    settings = DockerGroupSettings(socket=str(socket), image=image, **fields)
    return DockerProvisioner(group, settings, url=URL)


class TestDockerProvisioner(ProvisionerContract):
    @pytest.fixture
    def provisioner(self, engine_socket: Path, node_image: str) -> Iterator[Provisioner]:
        """A provisioner without containers, before and after."""
        provisioner = opened(engine_socket, node_image)
        yield provisioner
        for report in provisioner.look().values():
            provisioner.release(report.handle)

    def test_the_console_says_why_a_machine_does_not_join(self, provisioner: Provisioner) -> None:
        order = order_of()
        handle = provisioner.make(order)
        wait_for(
            lambda: "does not respond yet" in provisioner.output(handle),
            "reason",
            within_s=WITHIN_S,
        )
        release(provisioner, handle, order.name)
        assert provisioner.output(handle) == ""

    def test_a_container_has_limits_and_neither_privileges_nor_the_token_to_see(
        self, provisioner: Provisioner, engine: Docker
    ) -> None:
        order = order_of()
        handle = provisioner.make(order)
        details = engine.inspect(handle)
        assert order.join_token not in json.dumps(details)
        assert details["Name"] == f"/slipway-{order.name}"
        assert details["Config"]["Labels"]["slipway.group"] == "ngrp_1"
        assert details["Config"]["Labels"]["slipway.portal"] == URL
        assert details["Config"]["User"] == "slipway"
        assert "zone=a b'c" in details["Config"]["Cmd"]
        host = details["HostConfig"]
        assert (
            host["Memory"] == host["MemorySwap"] == order.amount.memory_bytes + AGENT_MEMORY_BYTES
        )
        assert host["NanoCpus"] == 500_000_000
        assert host["CapDrop"] == ["ALL"]
        assert not host["CapAdd"]
        assert not host["Privileged"]
        assert "no-new-privileges:true" in host["SecurityOpt"]
        assert details["Mounts"] == []
        assert not host["Devices"]
        assert host["PidMode"] == ""
        assert host["IpcMode"] == "private"
        # The token is a file of the container, which its agent reads.
        assert engine("exec", handle, "cat", "/run/slipway/join-token") == order.join_token
        release(provisioner, handle, order.name)

    def test_a_container_that_was_created_before_a_crash_is_started(
        self, provisioner: Provisioner, engine_socket: Path, node_image: str
    ) -> None:
        order = order_of()
        settings = DockerGroupSettings(socket=str(engine_socket), image=node_image, network="none")
        client = docker.APIClient(f"unix://{engine_socket}", version="auto")
        config = container_config("ngrp_1", order, settings, url=URL)
        created = client.create_container_from_config(config, f"slipway-{order.name}")["Id"]
        report = machine(provisioner, order.name)
        assert report is not None
        assert report.phase is MachinePhase.STARTING
        # Another process of the control worker, which knows nothing of the first.
        other = opened(engine_socket, node_image)
        assert other.make(order) == created
        report = machine(provisioner, order.name)
        assert report is not None
        assert report.phase is MachinePhase.RUNNING
        release(provisioner, created, order.name)

    def test_an_ended_container_is_reported_with_its_status_and_removed_with_its_volumes(
        self, provisioner: Provisioner, engine: Docker
    ) -> None:
        order = order_of()
        handle = provisioner.make(order)
        engine("kill", handle)
        wait_for(
            lambda: provisioner.look()[order.name].phase is MachinePhase.ENDING,
            "end",
            within_s=WITHIN_S,
        )
        assert "status 137" in provisioner.look()[order.name].detail
        release(provisioner, handle, order.name)
        assert provisioner.look() == {}
        assert engine("ps", "--all", "--quiet", "--filter", f"name={order.name}") == ""

    def test_a_container_of_another_group_is_not_seen(
        self, provisioner: Provisioner, engine_socket: Path, node_image: str
    ) -> None:
        order = order_of()
        handle = provisioner.make(order)
        assert opened(engine_socket, node_image, "ngrp_2").look() == {}
        with pytest.raises(ProvisionerRefused, match="already in use"):
            opened(engine_socket, node_image, "ngrp_2").make(order)
        release(provisioner, handle, order.name)

    def test_an_order_that_the_engine_refuses_leaves_nothing(
        self, provisioner: Provisioner, engine_socket: Path, node_image: str
    ) -> None:
        with pytest.raises(ProvisionerRefused, match="No such image"):
            opened(engine_socket, "slipway/no-such-image").make(order_of())
        with pytest.raises(ProvisionerRefused, match="no-such-network"):
            opened(engine_socket, node_image, network="no-such-network").make(order_of())
        with pytest.raises(ProvisionerRefused, match="CPUs"):
            provisioner.make(MachineOrder("huge", Amount(10_000_000, 2**30), "", (), "slj_x"))
        with pytest.raises(ProvisionerRefused, match="GPU"):
            provisioner.make(MachineOrder("gpu", Amount(500, 2**30, 1), "L4", (), "slj_x"))
        assert provisioner.look() == {}


@pytest.mark.parametrize("call", ["look", "make"])
def test_an_engine_that_does_not_answer_is_away(call: str, tmp_path: Path) -> None:
    provisioner = opened(tmp_path / "no.sock", "slipway/node")
    with pytest.raises(ProvisionerAway):
        _ = provisioner.look() if call == "look" else provisioner.make(order_of())


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"image": "--privileged"}, "image is not valid: it must be the name of an image"),
        ({"socket": "docker.sock"}, "socket is not valid: it must be an absolute path"),
        ({"machines": 0}, "machines is not valid"),
        ({"isolation": "none"}, "isolation is not valid: it must be shared or namespaces"),
        ({"privileged": True}, "docker has no setting privileged"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        DockerProvisionerKind(URL).clean(settings)
