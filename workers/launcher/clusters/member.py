"""The part of one rank in a cluster: its number, its resources, and its files."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.launcher.network import endpoint
from workers.launcher.program import Program

_WAIT_S: Final = 300.0
_WAIT_VARIABLE: Final = "SLIPWAY_CLUSTER_WAIT_S"
# Variables that belong to a rank and lead a script or a node to wait for other ranks.
RANK_ONLY: Final = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"),
    *("ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG"),
    *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
    *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "SLIPWAY_HOSTS"),
    *("PET_NNODES", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "SLIPWAY_HOSTFILE"),
    # It counts the CPUs of the task. Ray and Dask set it in their workers.
    "OMP_NUM_THREADS",
)


@dataclass(frozen=True)
class Member:
    """One rank of a job that forms a cluster.

    `cpus` and `memory_bytes` are those of its task, `own_host` is its address for the others,
    `hosts` are `address:port` of all ranks in order (none for a single rank, or for more than
    2,000), and `meeting` is where rank 0 introduces the ranks to each other. `env` is what the
    programs of the cluster start with. It has no variables of a rank, because a script that finds
    some would wait for ranks that run no script.
    """

    rank: int
    local_rank: int
    procs: int
    world_size: int
    cpus: int
    memory_bytes: int
    meeting: tuple[str, int]
    own_host: str
    hosts: tuple[str, ...]
    token: str
    folder: Path
    wait_s: float
    env: dict[str, str]

    @property
    def head_port(self) -> int:
        """The port that rank 0 may listen on, 0 if it has none."""
        return int(self.hosts[0].rpartition(":")[2]) if self.hosts else 0

    @property
    def tasks(self) -> int:
        """Number of tasks of the job."""
        return self.world_size // self.procs

    @property
    def own_threads(self) -> int:
        """This rank's share of the CPUs of its task."""
        return max(1, self.cpus // self.procs)

    @property
    def own_memory_bytes(self) -> int:
        """This rank's share of the memory of its task."""
        return self.memory_bytes // self.procs

    @property
    def meeting_text(self) -> str:
        """The address of the meeting as text."""
        return endpoint(*self.meeting)


def member_of(program: Program, env: Mapping[str, str], cleaned: Mapping[str, str]) -> Member:
    """Return the rank that has `env`, which is `cleaned` for the programs of the cluster."""
    rank, procs = int(env["RANK"]), int(env["LOCAL_WORLD_SIZE"])
    host, port = env["MASTER_ADDR"], int(env["MASTER_PORT"])
    own_host = host
    hosts_file = Path(env.get("SLIPWAY_HOSTFILE", ""))
    if hosts_file.is_file():
        own_host = hosts_file.read_text().splitlines()[rank // procs].split()[0]
    listed = env.get("SLIPWAY_HOSTS", "")
    return Member(
        rank=rank,
        local_rank=int(env["LOCAL_RANK"]),
        procs=procs,
        world_size=int(env["WORLD_SIZE"]),
        cpus=program.cpus,
        memory_bytes=program.memory_bytes,
        meeting=(host, port),
        own_host=own_host,
        hosts=tuple(listed.split(",")) if listed else (),
        token=env.get("SLIPWAY_TOKEN", ""),
        folder=Path(env["TMPDIR"]),
        wait_s=float(env.get(_WAIT_VARIABLE, _WAIT_S)),
        env={**cleaned, "PYTHONPATH": _python_path(program, cleaned)},
    )


def without_rank(env: Mapping[str, str]) -> dict[str, str]:
    """Return variables without those of a rank."""
    return {name: value for name, value in env.items() if name not in RANK_ONLY}


def _python_path(program: Program, env: Mapping[str, str]) -> str:
    """Return a path on which the nodes of the cluster find the modules of the script."""
    folder = Path.cwd()
    places = [folder]
    if program.kind == "script":
        places.insert(0, (folder / program.target).resolve().parent)
    places.extend(folder / entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry)
    added = [program.additions, *([program.sdk_dir] if program.sdk_dir else [])]
    return os.pathsep.join(dict.fromkeys([*map(str, places), *added]))


def log_line(text: str) -> None:
    """Write a line of ours into the log of this rank."""
    sys.stdout.write(f"[slipway] {text}\n")
    sys.stdout.flush()


def python_command(*arguments: str) -> list[str]:
    """Return a command of the Python of the job."""
    return [sys.executable, *arguments]
