"""Accounting of a Slurm cluster for tests: slurmdbd and its own MariaDB, as this user, in a folder.

It needs the Debian packages slurmdbd, slurm-wlm-mysql-plugin and mariadb-server.
"""

import getpass
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db")
_DATABASE = "slurm_acct"


def accounting_lines(folder: Path, port: int) -> list[str]:
    """Return the lines of slurm.conf for a slurmdbd at this port. Limits are enforced."""
    return [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=127.0.0.1",
        f"AccountingStoragePort={port}",
        # The socket of munged.
        f"AccountingStoragePass={folder}/munge.socket",
        "AccountingStorageEnforce=associations,limits,qos",
    ]


def write_accounting(
    folder: Path, *, host: str, ports: tuple[int, int], more_lines: Sequence[str] = ()
) -> None:
    """Write slurmdbd.conf and create an empty database. `ports` are slurmdbd's and MariaDB's."""
    user = getpass.getuser()
    conf = folder / "slurmdbd.conf"
    conf.touch(mode=0o600)
    conf.write_text(
        "\n".join(
            (
                "AuthType=auth/munge",
                f"AuthInfo=socket={folder}/munge.socket",
                f"DbdHost={host}",
                "DbdAddr=127.0.0.1",
                f"DbdPort={ports[0]}",
                f"SlurmUser={user}",
                f"LogFile={folder}/slurmdbd.log",
                f"PidFile={folder}/slurmdbd.pid",
                "StorageType=accounting_storage/mysql",
                "StorageHost=127.0.0.1",
                f"StoragePort={ports[1]}",
                "StorageUser=slurm",
                "StoragePass=slurm",
                f"StorageLoc={_DATABASE}",
                *more_lines,
                "",
            )
        ),
        "utf-8",
    )
    subprocess.run(
        [
            *("mariadb-install-db", "--no-defaults", f"--user={user}", "--skip-test-db"),
            *(f"--datadir={folder}/mariadb", "--auth-root-authentication-method=socket"),
            f"--auth-root-socket-user={user}",
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )


def mariadb_argv(folder: Path, port: int) -> list[str]:
    """Return the command of the database server."""
    program = shutil.which("mariadbd", path="/usr/sbin:/usr/bin") or "mariadbd"
    return [
        *(program, "--no-defaults", f"--user={getpass.getuser()}"),
        *(f"--datadir={folder}/mariadb", f"--socket={folder}/mariadb.socket"),
        *(f"--port={port}", "--bind-address=127.0.0.1", f"--pid-file={folder}/mariadb.pid"),
        *("--innodb-buffer-pool-size=64M", "--innodb-log-file-size=32M"),
        *("--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"),
    ]


def create_user(folder: Path) -> bool:
    """Let slurmdbd in once the database server answers. Returns whether it does."""
    grants = "; ".join(
        f"grant all on {_DATABASE}.* to slurm@'{host}' identified by 'slurm'"
        for host in ("127.0.0.1", "localhost")
    )
    done = subprocess.run(
        ["mariadb", "--no-defaults", f"--socket={folder}/mariadb.socket", "-e", grants],
        check=False,
        capture_output=True,
        timeout=30,
    )
    return done.returncode == 0
