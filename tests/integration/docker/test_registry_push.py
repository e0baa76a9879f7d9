"""Images of projects pushed to a real registry, with the account of the node."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from slipway.schemas.agent import EnvironmentSpec
from tests.image_registry import PROGRAM, ImageRegistry, running_registry
from tests.integration.docker.test_docker_backend import bench, engine
from tests.integration.docker.test_dockerfiles import SMALL, Builds, builds
from workers.node_agent.backends.base import PreparedEnvironment, TaskCode
from workers.node_agent.backends.docker import DockerBackend
from workers.node_agent.backends.project_images import ProjectImages
from workers.node_agent.errors import StartError

__all__ = ["bench", "builds", "engine"]
pytestmark = [
    pytest.mark.docker,
    pytest.mark.skipif(not PROGRAM, reason="no registry: TEST_DOCKER_REGISTRY is not set"),
]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[ImageRegistry]:
    """An empty registry that asks for an account."""
    with running_registry(tmp_path / "registry") as registry:
        yield registry


def push(
    builds: Builds, spec: EnvironmentSpec, repository: str, accounts: Path
) -> PreparedEnvironment:
    """Build an image for the project alpha, and push it."""
    backend = builds.bench.backend
    assert isinstance(backend, DockerBackend)

    async def fetch() -> Path:
        return builds.folder

    images = ProjectImages(
        *(backend._engine, backend._records, backend._disk),
        accounts,
    )
    code = TaskCode(fetch, SMALL, repository)
    return asyncio.run(images.ensure(spec, builds.log, "alpha", code, "10001:10001"))


def test_an_image_is_pushed_once_and_known_by_its_digest(
    builds: Builds, registry: ImageRegistry
) -> None:
    spec = builds.spec("FROM BASE\nRUN echo of-the-image > /marker\n")
    repository = f"{registry.host}/slipway/prj_alpha"
    first = push(builds, spec, repository, registry.accounts)
    assert first.image.startswith(f"{repository}@sha256:")
    assert first.image_python.startswith("/usr/bin/python3")
    assert registry.repositories() == ["slipway/prj_alpha"]
    log = builds.log.text
    assert f"Pushed: {first.image}" in log
    assert push(builds, spec, repository, registry.accounts) == first
    assert builds.log.text.count("Step 1/2") == 1
    assert "a-password-of-tests" not in builds.log.text
    assert registry.host not in builds.engine.run("images", "--format", "{{.Repository}}")


def test_a_push_that_the_registry_refuses_has_its_words(
    builds: Builds, registry: ImageRegistry, tmp_path: Path
) -> None:
    spec = builds.spec("FROM BASE\nRUN true\n")
    nobody = tmp_path / "nobody.json"
    nobody.write_text(json.dumps({"auths": {}}))
    with pytest.raises(StartError, match=r"could not be pushed to .*(no basic auth|unauthorized)"):
        push(builds, spec, f"{registry.host}/slipway/prj_alpha", nobody)
    broken = tmp_path / "broken.json"
    broken.write_text("{ secret")
    with pytest.raises(StartError, match=r"--registry-auth is not a readable config.json"):
        push(builds, spec, f"{registry.host}/slipway/prj_alpha", broken)
    with pytest.raises(StartError, match="is not a repository of images"):
        push(builds, spec, "not a repository", registry.accounts)
    assert registry.repositories() == []
