"""The engine that `scripts/docker-test-engine.sh` started, with the image of nodes."""

from pathlib import Path

import pytest

from tests.integration.docker.conftest import base_image, engine_socket
from tests.integration.node_groups.node_image import Docker, build_node_image

__all__ = ["base_image", "engine_socket"]


@pytest.fixture(scope="session")
def engine(engine_socket: Path) -> Docker:
    """The `docker` command at the engine."""
    return Docker(engine_socket)


@pytest.fixture(scope="session")
def node_image(engine: Docker, base_image: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of an image with the node agent."""
    return build_node_image(engine, base_image, tmp_path_factory.mktemp("node-image"))
