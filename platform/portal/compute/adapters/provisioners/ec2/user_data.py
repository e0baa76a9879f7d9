"""The program that a new instance runs: it starts the node agent. No I/O."""

import shlex

from portal.compute.adapters.provisioners.ec2.settings import Ec2Settings
from portal.compute.provisioners import MachineOrder

_SCRIPT = """#!/bin/sh
# Written by Slipway. The token joins this node once, and expires within minutes.
set -eu
umask 077
mkdir -p {folder}
printf %s {token} > {token_file}
chmod 755 {folder}
exec systemd-run --unit=slipway-node --description="Slipway node agent" \\
    --property=Restart=on-failure --property=RestartSec=5 \\
    {command}
"""


def user_data(order: MachineOrder, settings: Ec2Settings, *, url: str) -> str:
    """Return the program as text. The same for the same order, as the client token requires."""
    token_file = f"{settings.folder}/join-token"
    command = [
        *(settings.python, "-m", "workers.node_agent", "--url", url),
        *("--name", order.name, "--data-dir", f"{settings.folder}/node"),
        *("--token-file", token_file, "--backend", settings.backend),
        *("--cpus", f"{order.amount.cpu_millis / 1000:g}"),
        *("--memory", f"{order.amount.memory_bytes // 2**20}MiB"),
    ]
    if settings.task_python:
        command += ["--python", settings.task_python]
    for key, value in order.labels:
        command += ["--label", f"{key}={value}"]
    return _SCRIPT.format(
        folder=shlex.quote(settings.folder),
        token=shlex.quote(order.join_token),
        token_file=shlex.quote(token_file),
        command=shlex.join(command),
    )
