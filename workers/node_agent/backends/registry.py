"""Implementations of back ends by name, one for each entry of `slipway.schemas.backends`.

They are imported when a node uses them: `docker` imports a package that few nodes need.
"""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any, Final

from workers.node_agent.settings import AgentSettings

IMPLEMENTATIONS: Final[Mapping[str, str]] = {
    "process": "workers.node_agent.backends.process:ProcessBackend",
    "docker": "workers.node_agent.backends.docker:DockerBackend",
}


def backend_class(name: str) -> type[Any]:
    """Import a back end."""
    implementation: type[Any] = resolve_name(IMPLEMENTATIONS[name])
    return implementation


def obstacle(name: str, settings: AgentSettings) -> str:
    """Return why this machine cannot run a back end, as far as that needs no import of it."""
    path = settings.docker_socket
    if name == "docker" and not path.exists():
        return (
            f"There is no Docker engine at {path}: start it, or give the agent its socket with "
            "--docker-socket."
        )
    return ""
