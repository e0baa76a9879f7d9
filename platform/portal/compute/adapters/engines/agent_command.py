"""Command and environment of the node agent in an allocation, the same for every engine."""

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from portal.compute.engines import AllocationOrder

# The clone or the installed package that this portal runs from.
ROOT = Path(__file__).resolve().parents[5]
TOKENS = "SLIPWAY_JOIN_TOKENS"
INDEX = "SLIPWAY_ALLOCATION_INDEX"
# Variables of the portal that an agent on this machine inherits: none that is secret.
_KEPT = re.compile(r"PATH|LANG|LC_\w+|TZ|TMPDIR|HOME|USER|LOGNAME|\w+_proxy|\w+_PROXY|SSL_CERT_\w+")


def agent_argv(order: AllocationOrder, *, folder: str, python: str = "") -> tuple[str, ...]:
    """Return the command of one task, without the address of the portal.

    `folder` and `python` are on the machine where it runs.
    """
    return (
        *(python or sys.executable, "-m", "workers.node_agent"),
        *("--data-dir", folder),
        *("--allocation", order.name),
        *("--allocation-grace", f"{order.grace.total_seconds():g}"),
        *("--cpus", f"{order.amount.cpu_millis / 1000:g}"),
        *("--memory", f"{order.amount.memory_bytes // 2**20}MiB"),
        *("--backend", "process"),
    )


def agent_variables(order: AllocationOrder) -> dict[str, str]:
    """Return the variables that the agents of an allocation need: their one-time tokens."""
    return {TOKENS: ",".join(order.join_tokens)}


def clean_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the part of our environment that an agent on this machine may have."""
    kept = {name: value for name, value in environ.items() if _KEPT.fullmatch(name)}
    return kept | {"PYTHONPATH": os.pathsep.join((str(ROOT / "platform"), str(ROOT)))}
