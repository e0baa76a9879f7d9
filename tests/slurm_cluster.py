"""A real Slurm cluster on this machine: munged, slurmctld and slurmd, as this user, in a folder.

It needs the Debian packages slurm-wlm and munge. Jobs run as the user who submits them, which is
root where the tests are. Nodes differ by name and port. Without accounting ended jobs are known for
MinJobAge seconds; with it there are slurmdbd and a MariaDB beside them.
"""

import getpass
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_ports
from tests.processes import Program, children_of, wait_for
from tests.slurm_accounting import (
    accounting_lines,
    create_user,
    mariadb_argv,
    write_accounting,
)
from tests.slurm_conf import slurm_conf, with_lines

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
_STARTS_WITHIN_S = 60


def missing_programs(programs: Sequence[str] = PROGRAMS) -> list[str]:
    """Return the programs of Slurm that this machine lacks."""
    folders = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
    return [name for name in programs if shutil.which(name, path=folders) is None]


@dataclass
class SlurmCluster:
    """A cluster of `nodes` machines with `cpus` and `memory_mb` each."""

    folder: Path
    ports: list[int]
    nodes: int
    cpus: int
    memory_mb: int
    has_accounting: bool = False
    more_lines: Sequence[str] = ()
    programs: dict[str, Program] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        """The file that SLURM_CONF names."""
        return self.folder / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which the commands of Slurm reach this cluster."""
        path = os.pathsep.join((os.environ["PATH"], "/usr/sbin", "/sbin"))
        return os.environ | {"SLURM_CONF": str(self.conf), "PATH": path}

    def run(self, *command: str) -> str:
        """Run a command of Slurm and return what it printed."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def start(self, name: str) -> None:
        """Start a program such as `slurmctld`, or a node such as `n1`, also after it was killed."""
        self.programs[name] = Program(
            self._argv(name), env=self.environment, output=self.folder / f"{name}.out"
        )

    def _argv(self, name: str) -> list[str]:
        if name == "munged":
            return [
                *("munged", "--foreground", "--force"),
                f"--key-file={self.folder}/munge.key",
                f"--socket={self.folder}/munge.socket",
                f"--pid-file={self.folder}/munged.pid",
                f"--log-file={self.folder}/munged.log",
                f"--seed-file={self.folder}/munge.seed",
            ]
        if name == "mariadbd":
            return mariadb_argv(self.folder, self.ports[-1])
        if name == "slurmdbd":
            return ["slurmdbd", "-D"]
        if name == "slurmctld":
            return ["slurmctld", "-D", "-f", str(self.conf)]
        return ["slurmd", "-D", "-f", str(self.conf), "-N", name]

    def wait_until_idle(self) -> None:
        """Wait until every node takes work."""

        def idle() -> bool:
            done = subprocess.run(
                ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"],
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            return len(set(done.stdout.split())) == self.nodes

        wait_for(idle, "idle nodes of Slurm", within_s=_STARTS_WITHIN_S)

    def processes_of_steps(self) -> list[int]:
        """Return what the nodes have started, which outlives them, and all below it."""
        mark = f"SLURM_CONF={self.conf}".encode()
        pids = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes().split(b"\0"):
                    pids.append(int(path.parent.name))
        for pid in pids:
            pids += children_of(pid)
        return pids

    def write(self) -> None:
        """Write the configuration and the key."""
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        for name in ("state", *(f"spool-n{number}" for number in range(1, self.nodes + 1))):
            (self.folder / name).mkdir()
        text = slurm_conf(
            self.folder,
            host=socket.gethostname(),
            user=getpass.getuser(),
            ports=self.ports,
            nodes=self.nodes,
            cpus=self.cpus,
            memory_mb=self.memory_mb,
        )
        if self.has_accounting:
            text = with_lines(text, accounting_lines(self.folder, self.ports[-2]))
            write_accounting(
                self.folder,
                host=socket.gethostname(),
                ports=(self.ports[-2], self.ports[-1]),
                more_lines=self.more_lines,
            )
        text = with_lines(text, self.more_lines)
        self.conf.write_text(text, "utf-8")

    def start_accounting(self) -> None:
        """Start the database and slurmdbd, with this cluster and this user."""
        self.start("mariadbd")
        wait_for(lambda: create_user(self.folder), "MariaDB", within_s=_STARTS_WITHIN_S)
        self.start("slurmdbd")
        wait_for(self.has_slurmdbd, "slurmdbd", within_s=_STARTS_WITHIN_S)
        self.account("cluster", "slipway")
        self.account("account", "vision", "cluster=slipway")
        self.account("user", getpass.getuser(), "account=vision")

    def account(self, *row: str) -> None:
        """Add a row to the accounting: a cluster, an account or a user."""
        self.run("sacctmgr", "--immediate", "add", *row)

    def has_slurmdbd(self) -> bool:
        """Return True if slurmdbd answers."""
        done = subprocess.run(
            ["sacctmgr", "--noheader", "show", "cluster"],
            env=self.environment,
            capture_output=True,
            timeout=30,
            check=False,
        )
        return done.returncode == 0


@contextmanager
def running_slurm(
    folder: Path,
    *,
    nodes: int = 2,
    cpus: int = 2,
    memory_mb: int = 4000,
    has_accounting: bool = False,
    more_lines: Sequence[str] = (),
) -> Iterator[SlurmCluster]:
    """Yield a cluster whose nodes are idle. Its folder must be new.

    `more_lines` are for slurm.conf, and for slurmdbd.conf where there is accounting.
    """
    folder.mkdir(mode=0o755)
    ports = free_ports(nodes + 1 + (2 if has_accounting else 0))
    cluster = SlurmCluster(folder, ports, nodes, cpus, memory_mb, has_accounting, more_lines)
    cluster.write()
    try:
        cluster.start("munged")
        wait_for((folder / "munge.socket").exists, "munged", within_s=_STARTS_WITHIN_S)
        if has_accounting:
            cluster.start_accounting()
        cluster.start("slurmctld")
        for number in range(1, nodes + 1):
            cluster.start(f"n{number}")
        cluster.wait_until_idle()
        yield cluster
    finally:
        for program in reversed(cluster.programs.values()):
            program.end()
        for pid in cluster.processes_of_steps():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
