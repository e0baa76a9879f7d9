"""slurmrestd beside a Slurm cluster for tests, with tokens of a Slipway, and real Unix accounts.

It needs root, and the Debian packages slurmrestd and slurm-wlm-jwt-plugin.
"""

import json
import os
import pwd
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from portal.compute.adapters.engines.slurm.tokens import SlurmKeys
from tests.ports import free_ports
from tests.processes import Program, wait_for
from tests.slurm_accounting import PROGRAMS as ACCOUNTING_PROGRAMS
from tests.slurm_cluster import PROGRAMS as CLUSTER_PROGRAMS
from tests.slurm_cluster import SlurmCluster, missing_programs, running_slurm

_PLUGINS = Path("/usr/lib/x86_64-linux-gnu/slurm-wlm"), Path("/usr/lib/aarch64-linux-gnu/slurm-wlm")


def reason_without_rest() -> str:
    """Return why there can be no slurmrestd here, "" if there can."""
    missing = missing_programs((*CLUSTER_PROGRAMS, *ACCOUNTING_PROGRAMS, "slurmrestd"))
    if missing:
        return f"slurmrestd is not tested, because these programs are not installed: {missing}"
    if not any((folder / "auth_jwt.so").exists() for folder in _PLUGINS):
        return "slurmrestd is not tested, because slurm-wlm-jwt-plugin is not installed"
    return "" if os.getuid() == 0 else "slurmrestd is not tested: other accounts need root"


@contextmanager
def unix_accounts(*names: str) -> Iterator[None]:
    """Create Unix accounts with homes, and remove them in the end."""
    for name in names:
        subprocess.run(["useradd", "--create-home", "--user-group", name], check=True)
    try:
        yield
    finally:
        for name in names:
            subprocess.run(
                ["userdel", "--remove", "--force", name], check=False, capture_output=True
            )


@contextmanager
def running_slurm_with_rest(
    folder: Path, keys: SlurmKeys, *, server: str, people: tuple[str, ...], cpus: int = 2
) -> Iterator[tuple[SlurmCluster, str]]:
    """Yield a cluster with accounting, and the address of its slurmrestd, which runs as `server`.

    Slurm trusts the public keys in `folder`.jwks. `people` may submit.
    """
    jwks = folder.with_suffix(".jwks")
    jwks.write_text(json.dumps(keys.jwks()), "ascii")
    lines = ("AuthAltTypes=auth/jwt", f"AuthAltParameters=jwks={jwks}")
    with running_slurm(folder, cpus=cpus, has_accounting=True, more_lines=lines) as cluster:
        for person in people:
            cluster.account("user", person, "account=vision")
        port = free_ports(1)[0]
        start_rest(cluster, port, server)
        try:
            yield cluster, f"http://127.0.0.1:{port}"
        finally:
            cluster.programs.pop("slurmrestd").end()


def start_rest(cluster: SlurmCluster, port: int, server: str) -> None:
    """Start slurmrestd and wait until it listens."""
    account = pwd.getpwnam(server)
    cluster.programs["slurmrestd"] = Program(
        [
            *("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}"),
            *("--clear-groups", "--"),
            *("slurmrestd", "-a", "rest_auth/jwt", f"127.0.0.1:{port}"),
        ],
        env=cluster.environment | {"SLURM_JWT": "daemon"},
        output=cluster.folder / "slurmrestd.out",
    )

    def listens() -> bool:
        with socket.socket() as connection:
            return connection.connect_ex(("127.0.0.1", port)) == 0

    wait_for(listens, "slurmrestd", within_s=60)
