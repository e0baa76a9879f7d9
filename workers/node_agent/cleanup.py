"""`python -m workers.node_agent.cleanup DATA_DIR`: end the remaining tasks of a node, now.

Tasks survive the death of their agent, which is right only if another agent will be started. This
command is for the case that none will. It records how each task ended, and the next agent of the
folder reports that.
"""

import asyncio
import logging
import sys
import time
from pathlib import Path
from typing import Final

from slipway.schemas.workloads import ReasonCode
from workers.node_agent.attempts import Attempt, AttemptTable
from workers.node_agent.backends.base import Backend, Phase
from workers.node_agent.backends.registry import IMPLEMENTATIONS, backend_class
from workers.node_agent.errors import AgentError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.settings import AgentSettings

log = logging.getLogger(__name__)
_LOCK_PATIENCE_S: Final = 5.0
_FAILED: Final = 1
_WHY: Final = "The platform on this machine was killed, and its tasks with it."


async def clear(data_dir: Path) -> int:
    """End every task of the node with this folder and return their number.

    Raises AgentError while an agent runs there.
    """
    folders = NodeFolders(data_dir)
    if not folders.tasks.is_dir():
        return 0
    _wait_for_lock(folders)
    settings = AgentSettings(url="", data_dir=data_dir, token_file=None, name="", labels={})
    left = [attempt for attempt in AttemptTable(folders).load_leftover() if not _has_ended(attempt)]
    backends: dict[str, Backend] = {
        name: backend_class(name)(settings, folders)
        for name in {attempt.record.backend for attempt in left}
        if name in IMPLEMENTATIONS
    }
    await asyncio.gather(*(_end(attempt, backends) for attempt in left))
    return len(left)


def _wait_for_lock(folders: NodeFolders) -> None:
    """Acquire the agent lock, with patience for an agent that was just killed."""
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            folders.lock()
        except AgentError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _has_ended(attempt: Attempt) -> bool:
    return attempt.journal.has_ended() and not attempt.shim_is_alive()


async def _end(attempt: Attempt, backends: dict[str, Backend]) -> None:
    backend = backends.get(attempt.record.backend)
    if backend is None:
        return
    # Record the reason before the kill, after which the shim would record another one.
    if (await backend.phase(attempt.handle)).phase is not Phase.ENDED:
        attempt.end(ReasonCode.NODE_LOST, _WHY)
    await backend.remove(attempt.handle)


def main() -> int:
    """Clear the folder named on the command line and return the exit status."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    try:
        count = asyncio.run(clear(Path(sys.argv[1])))
    except AgentError as error:
        sys.stderr.write(f"slipway node agent: {error}\n")
        return _FAILED
    if count:
        sys.stderr.write(f"slipway node agent: stopped {count} leftover tasks\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
