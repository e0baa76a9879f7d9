"""The relay of this machine: how `manage.py up` supervises it.

Its Unix sockets lead to notebooks and replicas in pools. The Hub, the notebooks' proxy and gateways
find them in its folder. The supervisor imports this module, so it does not use Django.
"""

import contextlib
import os
import sys
from pathlib import Path

from portal.config.env import Env
from portal.config.local_node import EVERY_ADDRESS, base_environment, portal_url
from portal.config.short_folders import short_folder
from portal.config.supervision.errors import StartError
from portal.config.supervision.probes import http_alive, http_ready
from portal.config.supervision.supervisor import ProcessSpec

# The longest path of a folder in which the sockets still have valid paths.
_LONGEST_FOLDER = 66
_STOP_GRACE_S = 6.0


def folder_of(settings: Env) -> Path:
    """Return the folder of the relay's sockets: in the data folder, which others cannot enter.

    Where their paths would be too long, it is a private folder of temporary files. Raises
    StartError when another user created that folder.
    """
    path = settings.data_dir / "relay"
    if len(os.fsencode(path)) <= _LONGEST_FOLDER:
        return path
    return short_folder(path, holds="the folder of the relay's sockets")


def remove_folder(settings: Env) -> None:
    """Remove the folder, once nothing uses it any more, if it is empty."""
    with contextlib.suppress(OSError, StartError):
        folder_of(settings).rmdir()


def relay_spec(settings: Env, environ: dict[str, str]) -> ProcessSpec:
    """Return the process spec of the relay. Without it only work in pools is out of reach."""
    host = EVERY_ADDRESS.get(settings.bind, settings.bind)
    return ProcessSpec(
        name="relay",
        argv=(
            *(sys.executable, "-m", "workers.relay", "--host", settings.bind),
            *("--port", str(settings.relay_port), "--folder", str(folder_of(settings))),
            *("--portal-url", portal_url(settings)),
        ),
        env=base_environment(environ),
        ready=http_ready(host, settings.relay_port),
        alive=http_alive(host, settings.relay_port),
        stop_grace_s=_STOP_GRACE_S,
        optional=True,
        awaited=False,
    )
