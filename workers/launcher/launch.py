"""Data that the agent passes to the shim of one task, and the files that they share.

It travels through a pipe, never through a file: `env` holds the project's secrets. Paths are as the
shim sees them, which inside a container differ from the agent's.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from workers.launcher.atomic_files import read_json, write_atomically
from workers.launcher.cgroup import Cgroup
from workers.launcher.logs import BOUND_BYTES
from workers.launcher.processes import ProcessMark
from workers.launcher.service_forwarder import Service


@dataclass(frozen=True)
class RendezvousAddress:
    """Rendezvous address of the ranks.

    With `agent_store` a store is served there, not by rank 0.
    """

    address: str
    port: int
    agent_store: bool = False


@dataclass(frozen=True)
class MemberAddress:
    """Address of one task of a gang, and the port reserved for each of its ranks, in order."""

    address: str
    ports: tuple[int, ...]


@dataclass(frozen=True)
class Gang:
    """Addresses at which ranks find each other: the rendezvous, and every task by index.

    `members` is empty if there is a single rank, or if an agent reserves no ports for ranks.
    """

    meeting: RendezvousAddress
    members: tuple[MemberAddress, ...] = ()

    def to_json(self) -> str:
        """Return one line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "Gang":
        """The inverse of `to_json`. Raises KeyError, TypeError."""
        members = (
            MemberAddress(item["address"], tuple(item["ports"])) for item in fields["members"]
        )
        return cls(RendezvousAddress(**fields["meeting"]), tuple(members))


@dataclass(frozen=True)
class SandboxBoundary:
    """The boundary around the ranks of a task.

    `level` is `namespaces` (a sandbox of their own), `users` (the Unix user of their project and
    Landlock), `shared` (Landlock alone), or `container` where the shim is inside one already and
    `none`. `uid` and `gid` are the project's user, where the agent is root. `readable` may be read
    besides the task's folders and the system, `hidden` may not although it is part of the system.
    With `offline` there is no network but the loopback interface of the sandbox, where nothing
    answers but `services`.
    """

    level: str = "shared"
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None
    offline: bool = False
    services: tuple[Service, ...] = ()

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> "SandboxBoundary":
        """The inverse of `dataclasses.asdict`."""
        lists = {name: tuple(fields[name]) for name in ("readable", "hidden")}
        services = tuple(Service(**service) for service in fields["services"])
        return cls(**{**fields, **lists, "services": services})


@dataclass(frozen=True)
class Launch:
    """One task, complete: `procs` ranks of `argv` under the supervision of one shim.

    `tmp_link` is another, shorter path of `tmp_dir`. The path of a socket has at most 107 bytes,
    and many libraries make theirs below TMPDIR.
    """

    task_id: str
    workload_id: str
    epoch: int
    argv: tuple[str, ...]
    env: dict[str, str]
    python: str
    root: str
    state_dir: str
    work_dir: str
    home_dir: str
    tmp_dir: str
    persistent_dir: str
    shared_dir: str
    bell_path: str
    contact_path: str
    address: str
    memory_bytes: int
    cpu_millis: int
    # Disk limit of the task on the node, and the reserve that must stay free. 0: not enforced.
    disk_bytes: int = 0
    disk_reserve_bytes: int = 0
    procs: int = 1
    world_size: int = 1
    first_rank: int = 0
    gpus: tuple[str, ...] = ()
    sdk_dir: str | None = None
    cache_dir: str = ""
    personal_dir: str = ""
    tmp_link: str = ""
    cgroup: Cgroup = field(default_factory=Cgroup)
    confined: SandboxBoundary = field(default_factory=SandboxBoundary)
    in_container: bool = False
    hang_after_s: float | None = None
    keep_on_fence: bool = False
    log_bound_bytes: int = BOUND_BYTES
    cold_reason: str = ""
    # Socket that a server of the platform listens on, where the node cannot be dialled.
    listen_path: str = ""
    # Socket for shells of people, which the agent alone can reach. Empty: there are none.
    shell_path: str = ""
    # Socket for the dashboard of the framework's cluster, which the agent alone can reach.
    dashboard_path: str = ""
    # Seconds for which a task that has failed stays, so that people can open shells in it.
    keep_failed_s: float = 0.0
    # Globs of files in the working folder that are kept at the end, and their bytes in all.
    keep: tuple[str, ...] = ()
    keep_limit_bytes: int = 0
    # Name of the framework whose cluster the ranks form before the program runs on rank 0.
    framework: str = ""
    # In an allocation of another scheduler: seconds to save after its SIGTERM, which it may send to
    # every process. 0: there is none, and a SIGTERM to the shim is a request to stop.
    engine_grace_s: float = 0.0

    def to_json(self) -> str:
        """Return one line of JSON, which contains secrets."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> "Launch":
        """The inverse of `to_json`."""
        document: dict[str, Any] = json.loads(text)
        confined = SandboxBoundary.from_json(document.pop("confined"))
        return cls(
            **{
                **document,
                "argv": tuple(document["argv"]),
                "gpus": tuple(document["gpus"]),
                "keep": tuple(document.get("keep", ())),
                "cgroup": Cgroup.from_json(document["cgroup"]),
                "confined": confined,
            }
        )

    @property
    def is_gang(self) -> bool:
        """True if other tasks run ranks of the same world."""
        return self.world_size > self.procs

    @property
    def hang_limit_s(self) -> float | None:
        """Limit of silence. Nodes of a cluster are silent while rank 0 runs the script."""
        return None if self.framework and self.first_rank > 0 else self.hang_after_s

    def start_message(self, *, warm: bool) -> str:
        """Return the event of the start of the ranks."""
        ranks = f"{self.procs} rank{'s' if self.procs > 1 else ''}"
        if warm:
            return f"{ranks} forked from a warm process."
        because = f": {self.cold_reason}" if self.cold_reason else ""
        return f"{ranks} started cold{because}."

    @property
    def folder(self) -> "StateFolder":
        """Folder that the shim writes to."""
        return StateFolder(Path(self.state_dir))


@dataclass(frozen=True)
class StopRequest:
    """Asked of a shim: end the ranks, with this reason, within this grace.

    With `keeps` the task stays for shells afterwards, although its ranks have not failed.
    """

    reason: str
    grace_s: float
    message: str = "Stopped on request."
    keeps: bool = False


@dataclass(frozen=True)
class StateFolder:
    """The files of one task that a shim writes and an agent reads, before and after crashes."""

    path: Path

    @property
    def journal(self) -> Path:
        """Events, in order."""
        return self.path / "journal.jsonl"

    @property
    def claim(self) -> Path:
        """Made once, by the one shim that runs this task: its process."""
        return self.path / "claim.json"

    @property
    def usage(self) -> Path:
        """Samples of what the task uses."""
        return self.path / "usage.jsonl"

    @property
    def disk(self) -> Path:
        """The disk that the task holds, as last measured."""
        return self.path / "disk.json"

    @property
    def stop(self) -> Path:
        """File with the agent's stop request."""
        return self.path / "stop.json"

    @property
    def gang(self) -> Path:
        """File with the addresses of all tasks, which the agent writes once they are known."""
        return self.path / "gang.json"

    @property
    def shim_log(self) -> Path:
        """Log of the shim itself, which is empty unless something is wrong."""
        return self.path / "shim.log"

    def logs(self, rank: int) -> Path:
        """Output of one rank, by its global number."""
        return self.path / "logs" / str(rank)

    def shim(self) -> ProcessMark | None:
        """The shim that claimed the task, dead or alive."""
        document = read_json(self.claim)
        if document is None:
            return None
        try:
            return ProcessMark(int(document["pid"]), int(document["ticks"]), str(document["boot"]))
        except (KeyError, TypeError, ValueError):
            return None

    def introduce(self, gang: Gang) -> None:
        """Write the addresses of all tasks of the gang, for the shim that waits for them."""
        write_atomically(self.gang, gang.to_json())

    def known_gang(self) -> Gang | None:
        """Return the addresses of the gang, if the agent has written them."""
        document = read_json(self.gang)
        if document is None:
            return None
        try:
            return Gang.from_json(document)
        except (KeyError, TypeError):
            return None

    def request_stop(self, request: StopRequest) -> None:
        """Write a stop request.

        A signal notifies the shim, or it reads the file within a second.
        """
        write_atomically(self.stop, json.dumps(asdict(request)))

    def stop_request(self) -> StopRequest | None:
        """Return the newest stop request, if any."""
        document = read_json(self.stop)
        if document is None:
            return None
        try:
            message = str(document.get("message", StopRequest.message))
            keeps = document.get("keeps") is True
            return StopRequest(str(document["reason"]), float(document["grace_s"]), message, keeps)
        except (KeyError, TypeError, ValueError):
            return None
