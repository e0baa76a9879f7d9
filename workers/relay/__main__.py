"""`python -m workers.relay`: the relay in the foreground, until SIGTERM."""

import argparse
import logging
import sys
from pathlib import Path
from typing import Final

import uvloop

from workers.relay.server import RelayServer

_FAILED: Final = 1


def main() -> int:
    """Serve and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m workers.relay",
        description="Carries connections to nodes that cannot be dialled.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, required=True, help="port to listen on")
    parser.add_argument("--folder", type=Path, required=True, help="folder of the sockets")
    parser.add_argument("--portal-url", required=True, help="address of the portal")
    arguments = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # It would log each probe.
    logging.getLogger("websockets").setLevel(logging.WARNING)
    server = RelayServer(
        host=arguments.host,
        port=arguments.port,
        folder=arguments.folder.absolute(),
        portal_url=arguments.portal_url.rstrip("/"),
    )
    try:
        uvloop.run(server.run())
    except OSError as error:
        sys.stderr.write(f"slipway relay: {error}\n")
        return _FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
