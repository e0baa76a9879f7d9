"""`python -m workers.gateway`: the gateway in the foreground."""

import logging
import sys

import uvloop

from workers.gateway.gateway import Gateway
from workers.gateway.settings import GatewaySettings, read_settings

_FAILED = 1


def main() -> int:
    """Serve until SIGTERM and return the exit status."""
    settings = read_settings(sys.argv[1:])
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s", stream=sys.stderr
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        uvloop.run(_run(settings))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"slipway gateway: {error}\n")
        return _FAILED
    return 0


async def _run(settings: GatewaySettings) -> None:
    await Gateway(settings).run()


if __name__ == "__main__":
    sys.exit(main())
