"""Images of projects' Dockerfiles on a real engine: built once, confined, or refused."""

import asyncio
import json
import os
import secrets
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipway.schemas.agent import EnvironmentSpec
from slipway.schemas.workloads import ReasonCode, Resources
from tests.integration.docker.test_docker_backend import Engine, bench, engine
from tests.workers.machines import eventually
from tests.workers.node_agent.backend_contract import Bench, BuildLines
from workers.node_agent.backends.base import PreparedEnvironment, TaskCode
from workers.node_agent.backends.project_images import REPOSITORY
from workers.node_agent.disk_limits import DiskLimits
from workers.node_agent.errors import StartError

__all__ = ["bench", "engine"]
pytestmark = pytest.mark.docker
MIB = 1 << 20
SMALL = Resources(cpu_millis=1000, memory_bytes=512 * MIB)


class Builds:
    """Builds of Dockerfiles for a project, from files in a folder."""

    def __init__(self, bench: Bench, engine: Engine, folder: Path, base: str) -> None:
        self.bench, self.engine, self.base = bench, engine, base
        self.folder = folder
        self.log = BuildLines()
        self._digests: set[str] = set()
        # Other tests use the engine, too, and may have left something in it.
        self._before = self._unnamed()

    def spec(self, text: str, **changes: Any) -> EnvironmentSpec:
        """A specification that no earlier run has built."""
        text = textwrap.dedent(text).lstrip().replace("BASE", self.base)
        digest = secrets.token_hex(32)
        self._digests.add(digest)
        return EnvironmentSpec(
            digest=digest, requirements="", python="", dockerfile=text, **changes
        )

    async def prepare(self, spec: EnvironmentSpec, project: str = "alpha") -> PreparedEnvironment:
        """Build, unless it is there."""

        async def fetch() -> Path:
            return self.folder

        return await self.bench.backend.prepare(spec, self.log, project, TaskCode(fetch, SMALL))

    def failure(self, text: str, **changes: Any) -> str:
        """The message of a build that fails, and leaves nothing."""
        before = self.images()
        with pytest.raises(StartError) as refused:
            asyncio.run(self.prepare(self.spec(text, **changes)))
        assert refused.value.reason is ReasonCode.ENVIRONMENT_FAILED
        assert self.images() == before
        self.check_leftovers()
        return str(refused.value)

    def images(self) -> list[str]:
        """The images that were built."""
        names = self.engine.run("images", "--format", "{{.Repository}}:{{.Tag}}", REPOSITORY)
        return [name for name in names.split() if any(part[:48] in name for part in self._digests)]

    def check_leftovers(self) -> None:
        """Check that no image without a name and no network stays. Those of other tests go, too."""
        eventually(lambda: not self._unnamed() - self._before, within_s=120)

    def _unnamed(self) -> set[str]:
        unnamed = ("images", "-q", "--filter", "dangling=true")
        images = self.engine.run(*unnamed)
        of_requirements = self.engine.run(*unnamed, "--filter", "label=slipway.build")
        networks = self.engine.run("network", "ls", "-q", "--filter", "name=slipway-build-")
        return {*images.split(), *networks.split()} - {*of_requirements.split()}


@pytest.fixture
def builds(bench: Bench, engine: Engine, base_image: str, tmp_path: Path) -> Iterator[Builds]:
    """Builds of the project alpha."""
    builds = Builds(bench, engine, tmp_path, base_image)
    yield builds
    for image in builds.images():
        engine.run("rmi", "--force", image)


def test_an_image_is_built_once_and_a_task_runs_in_it(builds: Builds) -> None:
    (builds.folder / "greeting.txt").write_text("hello\n")
    (builds.folder / "secret.txt").write_text("ignored\n")
    (builds.folder / ".dockerignore").write_text("secret.txt\n# comment\n")
    spec = builds.spec(
        """
        FROM BASE AS tools
        RUN echo from-a-stage > /stage
        FROM BASE
        COPY --from=tools /stage /stage
        COPY . /context
        ENV GREETING=set PATH=/opt/tools:$PATH HOME=/nowhere SLIPWAY_PERSISTENT_DIR=/nowhere
        VOLUME /scratch
        WORKDIR /context
        USER 12345
        ENTRYPOINT ["/bin/false"]
        """
    )
    script = (
        "import os, pathlib\n"
        "print(open('/stage').read().strip(), sorted(os.listdir('/context')))\n"
        "print(os.environ['GREETING'], os.environ['PATH'].split(':')[0])\n"
        "print(os.environ['HOME'], os.getcwd(), os.getuid() not in (0, 12345))\n"
        "pathlib.Path('/scratch/x').write_text('')\n"
        "import slipway\nprint('end', flush=True)\n"
    )

    async def check() -> str:
        prepared = await builds.prepare(spec)
        assert "Step 1/10" in builds.log.text
        assert "Ready: " in builds.log.text
        length = len(builds.log.text)
        assert await builds.prepare(spec) == prepared
        assert len(builds.log.text) == length
        assert (await builds.prepare(spec, "beta")).runtime != prepared.runtime
        order = replace(await builds.bench.order(script), runtime=prepared.runtime)
        handle = await builds.bench.backend.start(order)
        await builds.bench.until_said(handle, "end")
        mounts = builds.engine.container(handle)["Mounts"]
        assert [mount for mount in mounts if mount["Type"] == "volume"] == []
        return (await builds.bench.backend.logs(handle, 0, 0, 4096)).data.decode()

    lines = asyncio.run(check()).splitlines()
    assert lines[0] == "from-a-stage ['greeting.txt']"
    assert lines[1] == "set /opt/tools"
    assert lines[2] == "/slipway/home /slipway/work True"
    builds.check_leftovers()  # of the stages


def test_only_files_that_are_copied_travel(builds: Builds) -> None:
    for name in ("a.txt", "b.txt"):
        (builds.folder / "docker").mkdir(exist_ok=True)
        (builds.folder / "docker" / name).write_text(name)
    copied = "FROM BASE\nCOPY a.txt /a.txt\nRUN test -f /a.txt\n"
    asyncio.run(builds.prepare(builds.spec(copied, context="docker", copies=["a.txt"])))
    other = "FROM BASE\nCOPY b.txt /b.txt\n"
    message = builds.failure(other, context="docker", copies=["a.txt"])
    assert "line 2 of the Dockerfile, 'COPY b.txt /b.txt', failed" in message


def test_a_build_that_fails_names_its_line(builds: Builds) -> None:
    message = builds.failure(
        "FROM BASE\n\n# Two\nRUN echo so far\nRUN echo no luck; \\\n  exit 3\n"
    )
    assert "line 5 of the Dockerfile, 'RUN echo no luck;   exit 3', failed: it returned" in message
    assert "the status 3. Its last lines were:\nno luck" in message
    assert "Step 3/3" in builds.log.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM registry.invalid/none:1\n", "registry.invalid/none:1 is not on the node and could"),
        ("FROM 127.0.0.1:9/none:1\n", "the registry 127.0.0.1 is the node itself"),
        ("FROM localhost:9/none\n", "the registry localhost is the node itself"),
        ("FROM scratch\nCOPY a.txt /\n", "no python3 of it can be started"),
        ("FROM a\n", "it may be the id of an image"),
        ("FROM slipway-environment:x\n", "belong to a project"),
        (f"FROM BASE\nCOPY --from={REPOSITORY}:x / /\n", "belong to a project"),
        ("FROM BASE\nADD http://127.0.0.1:8000/ /x\n", "an address outside of the limits"),
        ("FROM BASE\nRUN --mount=type=secret,id=x true\n", "needs BuildKit"),
    ],
)
def test_a_refusal_has_a_reason(builds: Builds, text: str, reason: str) -> None:
    (builds.folder / "a.txt").write_text("")
    assert reason in builds.failure(text)


def test_what_a_build_can_reach(builds: Builds, engine_socket: Path) -> None:
    """A command of a Dockerfile tries more than it may."""
    (builds.folder / "attack.py").write_text(
        "import json, os, pathlib, socket\n"
        f"paths = ['/var/run/docker.sock', {str(engine_socket)!r}, '/slipway', '/dev/kvm',\n"
        f"         {str(builds.bench.folders.root)!r}, '/dev/sda', '/dev/mem']\n"
        "status = dict(line.split(':\\t', 1) for line in open('/proc/self/status')"
        " if ':\\t' in line)\n"
        "def limit(*names):\n"
        "    for name in names:\n"
        "        path = pathlib.Path('/sys/fs/cgroup', name)\n"
        "        if path.exists(): return path.read_text().split()[0]\n"
        "def mounts():\n"
        "    import ctypes\n"
        "    return ctypes.CDLL(None).mount(b'none', b'/mnt', b'tmpfs', 0, None)\n"
        "print('SEEN', json.dumps({\n"
        "    'paths': [path for path in paths if os.path.exists(path)],\n"
        "    'admin': bool(int(status['CapEff'], 16) & (1 << 21 | 1 << 19 | 1 << 12 | 1 << 16)),\n"
        "    'seccomp': status['Seccomp'].strip(), 'mounted': mounts() == 0,\n"
        "    'memory': limit('memory/memory.limit_in_bytes', 'memory.max'),\n"
        "    'pids': limit('pids/pids.max', 'pids.max'),\n"
        "    'variables': sorted(os.environ), 'processes': len([p for p in os.listdir('/proc')"
        " if p.isdigit()])}))\n"
    )
    os.environ["PIP_EXTRA_" + "INDEX_URL"] = "https://someone:hunter2@packages.example.org/wheels"
    try:
        text = "FROM BASE\nARG PIP_EXTRA_INDEX_URL\nCOPY . /c\nRUN sleep 1; python3 /c/attack.py\n"
        asyncio.run(builds.prepare(builds.spec(text)))
    finally:
        del os.environ["PIP_EXTRA_" + "INDEX_URL"]
    line = next(line for line in builds.log.text.splitlines() if line.startswith("SEEN"))
    seen = json.loads(line.removeprefix("SEEN"))
    assert seen["paths"] == []
    assert not seen["admin"]
    assert not seen["mounted"]
    assert seen["seccomp"] == "2"
    assert int(seen["memory"]) == SMALL.memory_bytes
    assert int(seen["pids"]) == 4096
    assert seen["processes"] < 5
    assert "hunter2" not in builds.log.text
    assert "PIP_EXTRA_" + "INDEX_URL" not in seen["variables"]


def test_memory_of_a_build_is_limited(builds: Builds) -> None:
    message = builds.failure("FROM BASE\nRUN exec python3 -c 'x = bytearray(2 << 30)'\n")
    assert "ran out of the memory" in message


def test_disk_of_a_build_is_limited(builds: Builds) -> None:
    images = builds.bench.backend._project_images  # type: ignore[attr-defined]
    images._disk = DiskLimits(1 << 40, 64 * MIB, 0)
    message = builds.failure(
        "FROM BASE\nRUN echo ' ---> Running in 0123456789ab'; "
        "head -c 200M /dev/zero > /big; sleep 600\n"
    )
    assert "its commands wrote more than 64 MiB" in message


def test_a_cancelled_build_leaves_nothing(builds: Builds) -> None:
    async def check() -> None:
        building = asyncio.create_task(builds.prepare(builds.spec("FROM BASE\nRUN sleep 600\n")))
        await asyncio.wait_for(builds.log.running.wait(), 60)
        building.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(building, 60)

    asyncio.run(check())
    assert builds.images() == []
    builds.check_leftovers()
