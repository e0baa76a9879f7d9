"""Hostile user code: tries every attack of the table and prints what each could read or do.

It needs nothing but the standard library, because it runs as a job, a notebook cell, the code of a
model and the `setup.py` of a package. `targets` names what it is after: paths, sockets, ports and
processes of another project and of the installation, as if it had been told all of them. It
knows none of the secrets. Those are recognised by their form: `canary-KIND-` and 32 digits.
"""

import json
import os
import signal
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from tests.security.isolation.hostile import files, kernel, processes, sharing
from tests.security.isolation.hostile.findings import PATIENCE_S, Findings, Targets

MODULES: dict[str, ModuleType] = {
    name: module for module in (files, kernel, processes, sharing) for name in vars(module)
}


def attack(names: list[str], targets: Targets) -> Iterator[dict[str, Any]]:
    """Try attacks, each in a process of its own; what one breaks does not stop the next."""
    for name in names:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _try(name, targets, writing)
        os.close(writing)
        with os.fdopen(reading, "rb") as file:
            text = file.read()
        os.waitpid(child, 0)
        yield (
            json.loads(text) if text else {"attack": name, "seen": [], "done": [], "error": "died"}
        )


def _try(name: str, targets: Targets, writing: int) -> None:
    findings = Findings()
    error = ""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(2 * PATIENCE_S)
    try:
        getattr(MODULES[name], name)(findings, targets)
    except BaseException as failure:
        error = f"{type(failure).__name__}: {failure}"
    answer = {"attack": name, "seen": sorted(findings.seen), "done": sorted(findings.done)}
    os.write(writing, json.dumps({**answer, "error": error}).encode())
    os._exit(0)


def main() -> None:
    """Attack as a script: the names and the targets are in a file beside it."""
    with open("targets.json") as file:
        orders = json.load(file)
    for findings in attack(orders["attacks"], orders["targets"]):
        print("attacked", json.dumps(findings), flush=True)
    print("<end>", flush=True)
