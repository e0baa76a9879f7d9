"""Ports of the ranks of one task, and what frameworks are told of the ranks of all tasks."""

import hashlib
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from workers.launcher.atomic_files import write_atomically
from workers.launcher.launch import Gang, Launch, MemberAddress, RendezvousAddress
from workers.launcher.network import (
    endpoint,
    listen_on_free_port,
    own_address,
    port_of,
    reserve_port,
)

_EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - reserved and never listened on
# A variable of the environment has at most 128 KiB, and an entry here at most 60 bytes.
_MOST_LISTED: Final = 2000
_LOOPBACK: Final = "127.0.0.1"
_HOST_FILE: Final = "slipway-hosts"


class GangPorts:
    """Ports of one task. The shim holds them, so that no other process is assigned them.

    The first task has one for the rendezvous. If the job has several ranks, each rank has one, on
    which it may listen: TensorFlow, for example, expects the address of every rank at the start.
    """

    def __init__(self, launch: Launch, *, serves_store: bool) -> None:
        self._address = _LOOPBACK
        if launch.is_gang:
            self._address = own_address() if launch.in_container else launch.address
        self._serves_store = serves_store
        self._meeting: socket.socket | None = None
        if launch.first_rank == 0:
            open_port = listen_on_free_port if serves_store else reserve_port
            self._meeting = open_port(self._address)
        count = launch.procs if launch.world_size > 1 else 0
        self._ranks = [reserve_port(_EVERY_ADDRESS) for _ in range(count)]

    @property
    def meeting(self) -> RendezvousAddress | None:
        """The rendezvous, if this is the first task."""
        if self._meeting is None:
            return None
        return RendezvousAddress(
            self._address, port_of(self._meeting), agent_store=self._serves_store
        )

    @property
    def member(self) -> MemberAddress:
        """This task, as other tasks of its gang reach it."""
        return MemberAddress(self._address, tuple(map(port_of, self._ranks)))

    def alone(self) -> Gang:
        """Return the gang of a job that has no other task."""
        assert self.meeting is not None  # noqa: S101 - its first rank is 0
        return Gang(self.meeting, (self.member,) if self._ranks else ())

    def take_store(self) -> socket.socket | None:
        """Return the listening socket of the store, for its server, or None if there is none."""
        if not self._serves_store:
            return None
        listening, self._meeting = self._meeting, None
        return listening

    def release(self) -> None:
        """Close these descriptors in a forked rank, where they may be closed already."""
        for held in (self._meeting, *self._ranks):
            with suppress(OSError):
                if held is not None:
                    held.close()


def write_host_file(launch: Launch, gang: Gang) -> None:
    """Write the host file of mpirun and DeepSpeed: one line for each task. Raises OSError."""
    if gang.members:
        lines = (f"{item.address} slots={len(item.ports)}\n" for item in gang.members)
        write_atomically(Path(launch.tmp_dir, _HOST_FILE), "".join(lines), mode=0o644)


def framework_variables(launch: Launch, rank: int, gang: Gang) -> dict[str, str]:
    """Return what frameworks other than torch read to find the other ranks of a job."""
    if not gang.members:
        return {}
    first = gang.members[0]
    variables = {
        "SLIPWAY_HOSTFILE": f"{launch.tmp_link or launch.tmp_dir}/{_HOST_FILE}",
        # Defaults of torchrun's options: one that each rank starts joins those of the others. It
        # listens itself, and at MASTER_PORT there may be a store already.
        "PET_NNODES": str(launch.world_size),
        "PET_NODE_RANK": str(rank),
        "PET_MASTER_ADDR": first.address,
        "PET_MASTER_PORT": str(first.ports[0]),
    }
    hosts = list(_endpoints(gang))
    if len(hosts) > _MOST_LISTED:
        return variables
    task = {"type": "worker", "index": rank}
    return {
        **variables,
        **ray_variables(launch.env),
        "SLIPWAY_HOSTS": ",".join(hosts),
        "TF_CONFIG": json.dumps({"cluster": {"worker": hosts}, "task": task}),
    }


def ray_variables(env: Mapping[str, str]) -> dict[str, str]:
    """Return what makes Ray refuse clients of other jobs, which may share the machine's network.

    All tasks of an attempt have the same token of the platform, and no other job has it. Ray reads
    these when it is imported. A project that sets them itself keeps its own.
    """
    token = env.get("SLIPWAY_TOKEN", "")
    if not token or "RAY_AUTH_MODE" in env:
        return {}
    derived = hashlib.sha256(f"ray\0{token}".encode()).hexdigest()
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": derived}


def _endpoints(gang: Gang) -> Iterator[str]:
    """Yield `address:port` of every rank, in order."""
    for member in gang.members:
        for port in member.ports:
            yield endpoint(member.address, port)
