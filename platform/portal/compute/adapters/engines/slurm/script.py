"""The batch script and the options that both transports submit."""

import re
import shlex

from portal.compute.adapters.engines.agent_command import ROOT, agent_argv, agent_variables
from portal.compute.adapters.engines.slurm.settings import SlurmSettings
from portal.compute.engines import AllocationOrder


def batch_script(
    order: AllocationOrder, settings: SlurmSettings, *, url: str, python: str, task_python: str
) -> str:
    """Return the batch script: one agent on each node.

    Its owner and the administrators of Slurm can read the tokens in it. Each works once.
    """
    folder = settings.folder
    shell_folder = shlex.quote(folder)
    if folder.startswith("~"):
        shell_folder = f'"$HOME"{shlex.quote(folder[1:])}'
    argv = [*agent_argv(order, folder="FOLDER", python=python), "--url", url]
    if task_python:
        argv += ["--python", task_python]
    words = (shell_folder if word == "FOLDER" else shlex.quote(word) for word in argv)
    variables = agent_variables(order)
    if not settings.python:
        # The nodes share the folder of this portal's own code.
        variables["PYTHONPATH"] = f"{ROOT / 'platform'}:{ROOT}"
    exports = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join(
        (
            "#!/bin/sh",
            # The job starts without variables of the submitter, whose shell may be anything.
            "export PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8",
            'HOME=$(getent passwd "$(id -u)" | cut -d: -f6)',
            "export HOME",
            *exports,
            f"mkdir -p {shell_folder}",
            f"log={shell_folder}/{shlex.quote(order.name)}.log",
            f'srun --export=ALL --kill-on-bad-exit=1 {" ".join(words)} >"$log" 2>&1',
            # The output of the agents stays where one of them failed.
            'status=$?; [ "$status" -ne 0 ] || rm -f "$log"; exit "$status"',
            "",
        )
    )


def gres_of(order: AllocationOrder) -> str:
    """Return the GPUs of one node as Slurm's generic resource, "" without any."""
    if not order.amount.gpus:
        return ""
    model = f"{order.gpu_model.lower()}:" if re.fullmatch(r"[\w.-]+", order.gpu_model) else ""
    return f"gpu:{model}{order.amount.gpus}"


def comment_of(order: AllocationOrder) -> str:
    """Return the label of an order as the comment of a job."""
    return re.sub(r"[^\w .:/-]", "_", order.label)[:100]


def cpus_of(order: AllocationOrder) -> int:
    """Return the whole CPUs of one task."""
    return max(1, -(-order.amount.cpu_millis // 1000))


def memory_mib_of(order: AllocationOrder) -> int:
    """Return the memory of one task in MiB."""
    return max(1, order.amount.memory_bytes // 2**20)


def minutes_of(order: AllocationOrder) -> int:
    """Return the time limit in minutes, rounded up. 0 stands for that of the partition."""
    return -(-int(order.time_limit.total_seconds()) // 60) if order.time_limit else 0
