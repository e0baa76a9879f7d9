"""The node of this machine: how `manage.py up` registers it and starts its agent.

The agent runs near user code, so it gets no secrets of the portal: an environment without
database, Redis and keys, and a join token in a file that only its owner can read. Its own folder
stores its identity, so that a restart finds the same node. The supervisor imports this module,
so it does not use Django.
"""

import contextlib
import json
import os
import re
import socket
import sys
from pathlib import Path
from typing import Any

from portal.config.env import ROOT, Env
from portal.config.supervision.probes import pid_file_ready, touched
from portal.config.supervision.supervisor import ProcessSpec

LOOPBACK = "127.0.0.1"
EVERY_ADDRESS = {"0.0.0.0": LOOPBACK, "::": "::1"}  # noqa: S104  (connected to, not bound)
# It stops its tasks before itself: at most 5 s for them to save, and some to report it.
_STOP_GRACE_S = 12.0
_REFUSED = "refused"
# Variables that a machine's owner sets for every program: paths, language, package index, GPUs.
_KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|PIP_\w+|SSL_CERT_(FILE|DIR)|"
    r"(REQUESTS|CURL)_CA_BUNDLE|LD_LIBRARY_PATH|CUDA_\w+|NVIDIA_\w+|"
    r"(?i:https?_proxy|all_proxy|no_proxy)"
)
# No packet is sent there, only the routing table is asked (an address for documentation).
_ELSEWHERE = ("192.0.2.1", 9)


def folder_of(settings: Env) -> Path:
    """Return the data folder of the node."""
    return settings.data_dir / "node"


def token_file(settings: Env) -> Path:
    """Return the path of the join token."""
    return folder_of(settings) / "join-token"


def portal_url(settings: Env) -> str:
    """Return the URL of the portal for processes of this installation."""
    if settings.internal_url:
        return settings.internal_url
    host = EVERY_ADDRESS.get(settings.bind, settings.bind)
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.portal_port}"


def identity_of(settings: Env) -> dict[str, Any]:
    """Return the identity the agent stores (`url`, `node_id`, `node_token`), or {} if none."""
    with contextlib.suppress(OSError, ValueError):
        document = json.loads((folder_of(settings) / "node.json").read_text("utf-8"))
        if isinstance(document, dict):
            return document
    return {}


def has_joined(settings: Env) -> bool:
    """Return True if the node can start with its identity: named, and of this portal.

    Its agent leaves a mark when the portal refused it, because the node was removed.
    """
    if (folder_of(settings) / _REFUSED).exists():
        return False
    return name_of(settings) != "" and identity_of(settings).get("url") == portal_url(settings)


def name_of(settings: Env) -> str:
    """Return the stored name of the node, or an empty string before it has one."""
    try:
        return (folder_of(settings) / "name").read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def suggested_name() -> str:
    """Return the machine's name as the name of a node."""
    slug = re.sub(r"[^a-z0-9]+", "-", socket.gethostname().lower()).strip("-")[:40].strip("-")
    return slug or "node"


def invite(settings: Env, *, name: str, token: str) -> None:
    """Write a name and a join token for the node and delete its old identity. Raise OSError."""
    write_for_owner(folder_of(settings) / "name", name)
    (folder_of(settings) / "node.json").unlink(missing_ok=True)
    (folder_of(settings) / _REFUSED).unlink(missing_ok=True)
    write_for_owner(token_file(settings), token)


def write_identity(settings: Env, *, name: str, identity: dict[str, Any]) -> None:
    """Let the node keep its identity, also at another port of this portal. Raise OSError."""
    write_for_owner(folder_of(settings) / "name", name)
    (folder_of(settings) / _REFUSED).unlink(missing_ok=True)
    if identity.get("url") != portal_url(settings):
        kept = json.dumps(identity | {"url": portal_url(settings)})
        write_for_owner(folder_of(settings) / "node.json", kept)


def write_for_owner(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its first byte on. Raise OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def base_environment(environ: dict[str, str]) -> dict[str, str]:
    """Return an environment without secrets of the portal: no database, no keys."""
    kept = {name: value for name, value in environ.items() if _KEPT.fullmatch(name)}
    beside = [kept.get("no_proxy") or kept.get("NO_PROXY") or "", LOOPBACK, "localhost", "::1"]
    without_proxy = ",".join(filter(None, beside))
    return kept | {
        "NO_PROXY": without_proxy,
        "no_proxy": without_proxy,
        "PYTHONPATH": os.pathsep.join((str(ROOT / "platform"), str(ROOT))),
    }


def _address(settings: Env) -> str:
    """Return the address of this machine for ranks on other nodes."""
    if not settings.is_loopback_only:
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe,
        ):
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
    return LOOPBACK


def agent_spec(settings: Env, environ: dict[str, str]) -> ProcessSpec:
    """Return the process spec of the node agent of this machine."""
    folder = folder_of(settings)
    scrubbed = base_environment(environ)
    argv = [
        *(sys.executable, "-m", "workers.node_agent", "--url", portal_url(settings)),
        *("--data-dir", str(folder), "--name", name_of(settings)),
        *("--hide", str(settings.data_dir)),
        *("--token-file", str(token_file(settings)), "--address", _address(settings)),
        "--stop-tasks-on-exit",
    ]
    if settings.job_python:
        argv += ["--python", settings.job_python]
    if settings.image_registry_auth:
        argv += ["--registry-auth", settings.image_registry_auth]
    return ProcessSpec(
        name="agent",
        argv=tuple(argv),
        env=scrubbed,
        ready=pid_file_ready(folder / "connected"),
        alive=touched(folder / "connected"),
        stop_grace_s=_STOP_GRACE_S,
        uses_others=True,
        optional=True,
        clear_up=(sys.executable, "-m", "workers.node_agent.cleanup", str(folder)),
    )
