"""`python -m workers.node_agent`: the agent in the foreground."""

import asyncio
import logging
import os
import sys

from workers.node_agent.agent import Agent
from workers.node_agent.errors import AgentError
from workers.node_agent.settings import AgentSettings, read_settings

_FAILED = 1


def main() -> int:
    """Run the agent and return the exit status."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr
    )
    # httpx logs each requested URL with its ids, ten times a second.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Tasks run as other users, which read what is put up for them. Private folders say so.
    os.umask(0o022)
    try:
        asyncio.run(_run(read_settings(sys.argv[1:])))
    except AgentError as error:
        sys.stderr.write(f"slipway node agent: {error}\n")
        return _FAILED
    return 0


async def _run(settings: AgentSettings) -> None:
    await Agent(settings).run()


if __name__ == "__main__":
    sys.exit(main())
