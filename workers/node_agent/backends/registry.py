"""Implementations of back ends by name, one for each entry of `slipway.schemas.backends`."""

from collections.abc import Mapping
from typing import Final

from workers.node_agent.backends.docker import DockerBackend
from workers.node_agent.backends.process import ProcessBackend

BACKEND_CLASSES: Final[Mapping[str, type[ProcessBackend | DockerBackend]]] = {
    ProcessBackend.name: ProcessBackend,
    DockerBackend.name: DockerBackend,
}
