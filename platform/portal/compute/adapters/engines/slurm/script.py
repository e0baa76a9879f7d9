"""The batch script and the options that both transports submit."""

import re
import shlex
from collections.abc import Sequence

from portal.compute.adapters.engines.agent_command import (
    ROOT,
    TOKENS,
    agent_argv,
    agent_variables,
)
from portal.compute.adapters.engines.slurm.settings import SlurmSettings
from portal.compute.engines import AllocationOrder


def batch_script(
    orders: Sequence[AllocationOrder],
    settings: SlurmSettings,
    *,
    url: str,
    python: str,
    task_python: str,
) -> str:
    """Return the batch script of an order, one agent on each node, or of an array of orders.

    Its owner and the administrators of Slurm can read the tokens in it. Each works once. That of an
    array has the tokens of all its elements, so each removes its copy before its agent starts.
    """
    order = orders[0]
    folder = settings.folder
    shell_folder = shlex.quote(folder)
    if folder.startswith("~"):
        shell_folder = f'"$HOME"{shlex.quote(folder[1:])}'
    argv = [*agent_argv(order, folder="FOLDER", python=python), "--url", url]
    if order.image is not None:
        argv += ["--image", order.image.reference, "--image-python", order.image.python]
        argv += ["--image-runtime", settings.container_runtime]
        # Each task is restricted by Landlock, in the container as outside of one.
        argv += ["--isolation", "shared", "--warm-limit", "0"]
    elif task_python:
        argv += ["--python", task_python]
    shell_words = {"FOLDER": shell_folder, order.name: '"$name"'}
    words = (shell_words.get(word) or shlex.quote(word) for word in argv)
    # Without an interpreter of their own the nodes share the folder of this portal's code.
    code = "" if settings.python else shlex.quote(f"{ROOT / 'platform'}:{ROOT}")
    lines = (
        # The job starts without variables of the submitter, whose shell may be anything.
        "export PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8",
        'HOME=$(getent passwd "$(id -u)" | cut -d: -f6)',
        "export HOME",
        *([_assignment(order)] if len(orders) == 1 else _choice(orders)),
        f"export {TOKENS}",
        *([f"export PYTHONPATH={code}"] if code else []),
        f"mkdir -p {shell_folder}",
        f'log={shell_folder}/"$name".log',
        f'srun --export=ALL --kill-on-bad-exit=1 {" ".join(words)} >"$log" 2>&1',
        # The output of the agents stays where one of them failed.
        'status=$?; [ "$status" -ne 0 ] || rm -f "$log"; exit "$status"',
    )
    # A group is read as a whole before it runs, so the file may go.
    return "\n".join(("#!/bin/sh", "{", *lines, "}", ""))


def _assignment(order: AllocationOrder) -> str:
    variables = {"name": order.name, **agent_variables(order)}
    return " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())


def _choice(orders: Sequence[AllocationOrder]) -> list[str]:
    """Return the lines that choose the name and the token of an element of an array."""
    return [
        'case "$SLURM_ARRAY_TASK_ID" in',
        *(f"{order.place}) {_assignment(order)} ;;" for order in orders),
        "*) exit 64 ;;",
        "esac",
        # It is a copy in the folder of slurmd, which belongs to the owner of the job.
        'case "$0" in */slurm_script) rm -f "$0" || : >"$0" ;; esac',
    ]


def gres_of(order: AllocationOrder) -> str:
    """Return the GPUs of one node as Slurm's generic resource, "" without any."""
    if not order.amount.gpus:
        return ""
    model = f"{order.gpu_model.lower()}:" if re.fullmatch(r"[\w.-]+", order.gpu_model) else ""
    return f"gpu:{model}{order.amount.gpus}"


def comment_of(order: AllocationOrder) -> str:
    """Return the label of an order as the comment of a job."""
    return re.sub(r"[^\w .:/-]", "_", order.label)[:100]


def comment_of_all(orders: Sequence[AllocationOrder]) -> str:
    """Return the comment of the job, or of the array, of orders."""
    more = f" and {len(orders) - 1} more" if len(orders) > 1 else ""
    return f"{comment_of(orders[0])}{more}"


def cpus_of(order: AllocationOrder) -> int:
    """Return the whole CPUs of one task."""
    return max(1, -(-order.amount.cpu_millis // 1000))


def memory_mib_of(order: AllocationOrder) -> int:
    """Return the memory of one task in MiB."""
    return max(1, order.amount.memory_bytes // 2**20)


def minutes_of(order: AllocationOrder) -> int:
    """Return the time limit in minutes, rounded up. 0 stands for that of the partition."""
    return -(-int(order.time_limit.total_seconds()) // 60) if order.time_limit else 0
