"""The engine that `scripts/docker-test-engine.sh` started, or the reason why there is none."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def engine_socket() -> Path:
    """The socket of the test engine."""
    path = os.environ.get("TEST_DOCKER_SOCKET")
    if not path:
        pytest.skip(
            os.environ.get("TEST_DOCKER_REASON")
            or "no Docker engine: run the tests through scripts/docker-test-engine.sh"
        )
    return Path(path)


@pytest.fixture(scope="session")
def base_image() -> str:
    """An image with Python on that engine."""
    return os.environ["TEST_DOCKER_IMAGE"]
