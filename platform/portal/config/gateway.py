"""The gateway of this machine: how `manage.py up` registers and supervises it.

It is exposed to the network, so it gets no secret of the portal but a token in a file that only
its owner can read. Its folder holds the data to serve from while the portal is down. The supervisor
imports this module, so it does not use Django.
"""

import sys
from pathlib import Path

from portal.config.env import Env
from portal.config.local_node import EVERY_ADDRESS, base_environment, portal_url, write_for_owner
from portal.config.relay import folder_of as relay_folder
from portal.config.supervision.probes import http_alive, http_ready
from portal.config.supervision.supervisor import ProcessSpec

# It responds to accepted requests before it stops.
_STOP_GRACE_S = 15.0


def folder_of(settings: Env) -> Path:
    """Return the data folder of the gateway."""
    return settings.data_dir / "gateway"


def token_file(settings: Env) -> Path:
    """Return the path of the gateway's token."""
    return folder_of(settings) / "token"


def token_of(settings: Env) -> str:
    """Return the gateway's token, or an empty string when it has none yet."""
    try:
        return token_file(settings).read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def write_token(settings: Env, token: str) -> None:
    """Write the gateway's token. Raise OSError when it cannot be written."""
    write_for_owner(token_file(settings), token)


def gateway_spec(settings: Env, environ: dict[str, str]) -> ProcessSpec:
    """Return the process spec of the gateway. It keeps serving when all others are down."""
    folder = folder_of(settings)
    host = EVERY_ADDRESS.get(settings.bind, settings.bind)
    return ProcessSpec(
        name="gateway",
        argv=(
            *(sys.executable, "-m", "workers.gateway", "--data-dir", str(folder)),
            *("--predictions-dir", str(settings.data_dir / "predictions")),
            *("--host", settings.bind, "--port", str(settings.gateway_port)),
            *("--portal-url", portal_url(settings), "--token-file", str(token_file(settings))),
            *("--public-url", settings.gateway_url),
            *("--relay-folder", str(relay_folder(settings))),
            *(f"--allow-host={host}" for host in settings.extra_hosts),
        ),
        env=base_environment(environ),
        ready=http_ready(host, settings.gateway_port, "/healthz"),
        alive=http_alive(host, settings.gateway_port),
        stop_grace_s=_STOP_GRACE_S,
        optional=True,
    )
