"""The pool of the demo: where `make demo POOL=slurm` trains instead of on the nodes of Slipway."""

import os
import shutil
from typing import Final

from scripts.loop.steps import DemoError, show
from slipway import Client
from slipway.errors import NotFound

ENGINES: Final = ("slurm", "local")


def name_of(engine: str) -> str:
    """Return the name of the demo's pool of an engine."""
    return f"demo-{engine}"


def create_pool(administrator: Client, engine: str) -> None:
    """Create the pool, unless it exists. Raises DemoError where this machine has no such engine.

    Slurm is the one whose commands this machine has, with `SLURM_CONF` if that is set.
    """
    name = name_of(engine)
    try:
        administrator.pools.get(name)
    except NotFound:
        administrator.pools.create(name, engine=engine, settings=_settings(engine))
    show("pool", f"{administrator.url}/settings/pools/{name}")


def _settings(engine: str) -> dict[str, object]:
    if engine == "local":
        return {"places": 2}
    if shutil.which("sbatch") is None:
        raise DemoError(
            "this machine has no sbatch: install slurm-client and its slurm.conf, or omit POOL"
        )
    conf = os.environ.get("SLURM_CONF")
    return {"slurm_conf": conf} if conf else {}
