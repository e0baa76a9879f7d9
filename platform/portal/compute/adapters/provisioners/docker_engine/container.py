"""Description of the container of a node. No I/O."""

import io
import tarfile
from typing import Any, Final

from portal.compute.adapters.provisioners.docker_engine.settings import DockerGroupSettings
from portal.compute.provisioners import MachineOrder

GROUP_LABEL: Final = "slipway.group"
MACHINE_LABEL: Final = "slipway.machine"
# The address of the portal, so that people see which installation a container belongs to.
PORTAL_LABEL: Final = "slipway.portal"
# The agent and its launchers need memory of their own, next to what tasks may use.
AGENT_MEMORY_BYTES: Final = 512 << 20
_MAX_PROCESSES: Final = 8192
_JOIN_FOLDER: Final = "run/slipway"
_JOIN_FILE: Final = "join-token"


def container_name(machine: str) -> str:
    """Return the name of the container of a machine."""
    return f"slipway-{machine}"


def container_config(
    group: str, order: MachineOrder, settings: DockerGroupSettings, *, url: str
) -> dict[str, Any]:
    """Return the body of the request that creates a container. The token is not in it."""
    command = [
        *("--url", url, "--name", order.name),
        *("--token-file", f"/{_JOIN_FOLDER}/{_JOIN_FILE}"),
        *("--cpus", f"{order.amount.cpu_millis / 1000:g}"),
        *("--memory", f"{order.amount.memory_bytes // 2**20}MiB"),
        "--stop-tasks-on-exit",
    ]
    for key, value in order.labels:
        command += ["--label", f"{key}={value}"]
    return {
        "Image": settings.image,
        "Cmd": command,
        "Hostname": order.name,
        "Labels": {GROUP_LABEL: group, MACHINE_LABEL: order.name, PORTAL_LABEL: url},
        "HostConfig": _host_config(order, settings),
    }


def _host_config(order: MachineOrder, settings: DockerGroupSettings) -> dict[str, Any]:
    memory = order.amount.memory_bytes + AGENT_MEMORY_BYTES
    config: dict[str, Any] = {
        "NanoCpus": order.amount.cpu_millis * 1_000_000,
        "Memory": memory,
        "MemorySwap": memory,
        "ShmSize": max(order.amount.memory_bytes // 2, 64 << 20),
        "PidsLimit": _MAX_PROCESSES,
        "Ulimits": [{"Name": "core", "Soft": 0, "Hard": 0}],
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges:true"],
        "CgroupnsMode": "private",
        "IpcMode": "private",
        "NetworkMode": settings.network,
        # An agent that crashes continues as the same node. After a restart of the engine the node
        # is replaced instead.
        "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": 5},
        "LogConfig": {"Type": "json-file", "Config": {"max-size": "10m", "max-file": "1"}},
    }
    if settings.isolation == "namespaces":
        # The agent confines each task in namespaces of its own, with a list of refused system
        # calls. Docker's own profiles refuse to create namespaces and to mount /proc.
        config["SecurityOpt"] += ["seccomp=unconfined", "apparmor=unconfined"]
        config["MaskedPaths"] = config["ReadonlyPaths"] = []
    return config


def token_archive(order: MachineOrder) -> bytes:
    """Return a tar with the join token, to be unpacked at `/`.

    Any user of the container may read it: the image decides which of them the agent is.
    """
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        folder = tarfile.TarInfo(_JOIN_FOLDER)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        data = order.join_token.encode("ascii")
        file = tarfile.TarInfo(f"{_JOIN_FOLDER}/{_JOIN_FILE}")
        file.size, file.mode = len(data), 0o444
        tar.addfile(file, io.BytesIO(data))
    return archive.getvalue()
