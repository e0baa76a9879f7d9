"""The engine that `scripts/docker-test-engine.sh` started, with our images on it."""

import os
from pathlib import Path

import pytest

from tests.integration.deploy.engine import Engine, build_all


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    """The engine, once all images are built."""
    socket = os.environ.get("TEST_DOCKER_SOCKET")
    if not socket:
        # Who asks for this test alone is not helped by one that was left out.
        pytest.fail(
            os.environ.get("TEST_DOCKER_REASON")
            or "no Docker engine: run the tests through scripts/docker-test-engine.sh"
        )
    engine = Engine(Path(socket))
    scratch = tmp_path / "images"
    scratch.mkdir()
    build_all(engine, os.environ["TEST_DOCKER_IMAGE"], scratch)
    return engine
