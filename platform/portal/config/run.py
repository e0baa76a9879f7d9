"""`manage.py run`: one process of an installation, in a container or a service manager's unit.

SLIPWAY_PROCESS names it. The process that `manage.py up` would supervise replaces this program,
so that signals and exit statuses are its own. Where two belong together, as JupyterHub and its
proxy do, they are supervised. `--check` probes its readiness instead, as `up` would.
"""

import argparse
import asyncio
import os
import sys
from typing import NoReturn

from portal.config import notebooks, up
from portal.config.env import ROOT, Env, env
from portal.config.gateway import gateway_spec, token_file, token_of
from portal.config.relay import relay_spec
from portal.config.supervision.console import Console
from portal.config.supervision.errors import StartError
from portal.config.supervision.supervisor import NAME, ProcessSpec, Supervisor
from portal.config.tracking_server import tracking_spec

_REFUSED = 2
_UNREADY = 1


def specs_of(settings: Env, environment: dict[str, str]) -> list[ProcessSpec]:
    """Return the specs of SLIPWAY_PROCESS. Raise StartError when it has no credentials yet."""
    match settings.process:
        case "portal":
            return [up.portal_spec(settings, environment)]
        case "control":
            return [up.control_spec(settings, environment)]
        case "tracking":
            return [tracking_spec(settings, environment)]
        case "gateway":
            if not token_of(settings):
                raise StartError(
                    f"the gateway has no token in {token_file(settings)}; run "
                    "`manage.py prepare --for-up` first, or `manage.py gateway_token`."
                )
            return [gateway_spec(settings, environment)]
        case "relay":
            return [relay_spec(settings, environment)]
        case "notebooks":
            process_specs = notebooks.notebooks_specs(settings, environment)
            if not process_specs:
                raise StartError(
                    f"the Hub has no credentials for {settings.notebooks_url or 'any address'}; "
                    "set SLIPWAY_NOTEBOOKS_PUBLIC_URL and run `manage.py prepare --for-up` "
                    "first."
                )
            return process_specs


async def _print_unready(specs: list[ProcessSpec]) -> int:
    """Print the processes that are not ready and return the exit status."""
    faults = [f"{spec.name}: {fault}" for spec in specs if (fault := await spec.ready())]
    sys.stderr.writelines(f"slipway: {fault}\n" for fault in faults)
    return _UNREADY if faults else 0


def _supervise(specs: list[ProcessSpec]) -> int:
    console = Console(sys.stdout, None, [NAME, *(spec.name for spec in specs)])
    supervisor = Supervisor(specs, console=console, cwd=ROOT, keep_open=())
    asyncio.run(supervisor.run(lambda: console.line(NAME, "ready")))
    return 0


def _become(spec: ProcessSpec) -> NoReturn:
    os.chdir(ROOT)
    os.execvpe(spec.argv[0], spec.argv, dict(spec.env))  # noqa: S606  (no shell wanted)


def main(argv: list[str]) -> int:
    """Run `manage.py run` and return the exit status: 1 not ready, 2 refused to start."""
    parser = argparse.ArgumentParser(
        prog="manage.py run", description="Run the process that SLIPWAY_PROCESS names."
    )
    parser.add_argument("--check", action="store_true", help="check whether it is ready, and exit")
    arguments = parser.parse_args(argv)
    try:
        specs = specs_of(env(), dict(os.environ))
    except StartError as error:
        sys.stderr.write(f"slipway: {error}\n")
        return _REFUSED
    if arguments.check:
        return asyncio.run(_print_unready(specs))
    if len(specs) > 1:
        return _supervise(specs)
    _become(specs[0])
