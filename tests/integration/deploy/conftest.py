"""The images, and an installation made of them."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.deploy.engine import Engine, Installation, build_all, install


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """The test engine, with all images built."""
    socket = os.environ.get("TEST_DOCKER_SOCKET")
    if not socket:
        pytest.skip(
            os.environ.get("TEST_DOCKER_REASON")
            or "no Docker engine: run the tests through scripts/docker-test-engine.sh"
        )
    engine = Engine(Path(socket))
    build_all(engine, os.environ["TEST_DOCKER_IMAGE"], tmp_path_factory.mktemp("images"))
    return engine


@pytest.fixture(scope="session")
def installation(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Installation]:
    """The compose file, up; whatever comes of it, nothing of it stays."""
    folder = tmp_path_factory.mktemp("compose")
    found = install(engine, folder, f"slipwaytest{os.getpid()}")
    try:
        found.compose("up", "--detach", "--no-build")
        yield found
    finally:
        found.compose("down", "--volumes", "--timeout", "5")
