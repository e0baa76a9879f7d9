"""Allocation mode: the agent runs inside an allocation of another scheduler, for one workload.

Slurm (or another engine) decides when and where. The agent joins with a one-time token that is
bound to the workload, runs its task and leaves. A signal to end comes from the engine then: it
preempts, cancels, or the time limit has come. The task gets its grace to save a checkpoint.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.launcher.exit_reasons import ENGINE_ENDED, PREEMPTED
from workers.launcher.launch import StopRequest
from workers.node_agent.errors import AgentError
from workers.node_agent.folders import NodeFolders

# Join tokens of all tasks of the allocation, in their order, separated by commas.
TOKENS: Final = "SLIPWAY_JOIN_TOKENS"
# Number of a task in its allocation, as the engines of this list call it.
_INDEX_VARIABLES: Final = ("SLIPWAY_ALLOCATION_INDEX", "SLURM_PROCID", "JOB_COMPLETION_INDEX")
# Allocations that may run at once on one machine with one data folder.
_SLOTS: Final = 64


@dataclass(frozen=True)
class AllocationSeat:
    """The place of this agent in an allocation: its number, and the token to join with.

    `grace_s` is how long the engine waits after its signal before it kills, `patience_s` how long
    the agent keeps an allocation in which nothing runs while the portal does not answer.
    """

    name: str
    index: int
    join_token: str
    grace_s: float
    patience_s: float

    @property
    def node_name(self) -> str:
        """Return the name of the node, which no other task of any allocation has."""
        return f"{self.name}-{self.index}"

    @property
    def stop_request(self) -> StopRequest:
        """Return the request to end that the engine's signal stands for."""
        return StopRequest(PREEMPTED, self.grace_s, ENGINE_ENDED)


def read_seat(
    name: str, environ: Mapping[str, str], *, grace_s: float, patience_s: float
) -> AllocationSeat:
    """Return the place that the engine's variables describe. Raises AgentError."""
    numbers = [environ[variable] for variable in _INDEX_VARIABLES if variable in environ]
    if not numbers or not numbers[0].isdigit():
        raise AgentError(
            f"The number of this task is unknown: none of {', '.join(_INDEX_VARIABLES)} is set."
        )
    tokens = environ.get(TOKENS, "").split(",")
    index = int(numbers[0])
    if index >= len(tokens) or not tokens[index]:
        raise AgentError(f"{TOKENS} contains no join token for task {index}.")
    return AllocationSeat(name, index, tokens[index], grace_s, patience_s)


def forget_tokens() -> None:
    """Remove the tokens from the environment, which tasks could read in /proc."""
    os.environ.pop(TOKENS, None)


def claim_slot(base: Path) -> NodeFolders:
    """Return the first free folder below `base`, locked for this process. Raises AgentError.

    Folders are used again by later allocations, so their environments are built once. What projects
    keep is one folder for all of them, so that a notebook finds its files wherever it starts.
    """
    for number in range(_SLOTS):
        folders = NodeFolders(base / str(number))
        folders.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            folders.lock()
        except AgentError:
            continue
        folders.persistent = base / folders.persistent.name
        return folders
    raise AgentError(f"{_SLOTS} agents already run with folders below {base}.")
