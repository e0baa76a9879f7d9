"""A task in a container beside the agent's, with real processes: the starter, and the shim."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import slipway
from slipway.schemas.agent import EnvironmentSpec
from tests.workers.node_agent.backend_contract import Bench, BuildLines
from tests.workers.node_agent.test_process_backend import make_settings
from workers import launcher
from workers.launcher import task_starter
from workers.launcher.launch import StopRequest
from workers.node_agent.backends.base import Phase
from workers.node_agent.backends.process import ProcessBackend
from workers.node_agent.errors import AgentError, StartError
from workers.node_agent.folders import NodeFolders
from workers.node_agent.isolation import Isolation
from workers.node_agent.task_container import TaskContainer

IMAGE = EnvironmentSpec(digest="ab" * 32, requirements="", python="", dockerfile="FROM x\n")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path, for sockets."""
    folder = Path(tempfile.mkdtemp(prefix="sl-"))
    yield folder
    shutil.rmtree(folder)


def start_starter(folder: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Start the first process of the container of a task, as its pod does."""
    text = Path(task_starter.__file__).read_text("utf-8")
    path = os.environ["PATH"]
    return subprocess.Popen(
        [*(sys.executable, "-I", "-S", "-c", text), str(folder / "task"), str(folder)],
        env={"PATH": path, "OF_THE_IMAGE": "yes", "KUBERNETES_PORT": "tcp://10.0.0.1"} | variables,
    )


@pytest.fixture
def container(folder: Path) -> Iterator[TaskContainer]:
    """The connection to a starter."""
    starter = start_starter(folder)
    yield TaskContainer.wait(folder / "task")
    starter.kill()
    starter.wait()


@pytest.fixture
def bench(folder: Path, container: TaskContainer) -> Bench:
    """An agent whose task runs beside it."""
    folders = NodeFolders(folder)
    folders.prepare(
        launcher=Path(launcher.__path__[0]).resolve(),
        sdk=Path(slipway.__path__[0]).resolve(),
        copies=True,
    )
    settings = make_settings(folder, isolation="shared", cgroups=False)
    isolation = Isolation.measure(settings, folders)
    return Bench(ProcessBackend(settings, folders, isolation, container=container), folders)


def test_a_task_runs_in_the_container_with_its_variables(bench: Bench) -> None:
    async def check() -> None:
        prepared = await bench.backend.prepare(IMAGE, BuildLines(), "alpha")
        assert prepared.runtime == sys.executable
        assert prepared.variables["OF_THE_IMAGE"] == "yes"
        assert "KUBERNETES_PORT" not in prepared.variables
        order, handle = await bench.start("import slipway; print('done', slipway.__file__)")
        await bench.until(handle, Phase.ENDED)
        assert bench.end(order)["reason"] == "completed"
        output = (await bench.backend.logs(handle, 0, 0, 1000)).data.decode()
        # The code of the agent is copied, because the container does not have it.
        assert output.startswith(f"done {bench.folders.sdk}")
        assert not (bench.folders.sdk / "slipway").is_symlink()

    asyncio.run(check())


def test_a_task_is_asked_to_end_through_the_container(bench: Bench) -> None:
    async def check() -> None:
        order, handle = await bench.start(
            "print('ready', flush=True)\nimport time; time.sleep(600)"
        )
        await bench.until_said(handle, "ready")
        await bench.backend.stop(handle, StopRequest("user", 5.0))
        await bench.until(handle, Phase.ENDED)
        assert bench.end(order)["reason"] == "user"
        with pytest.raises(StartError, match="has started one already"):
            await bench.start("print(2)")

    asyncio.run(check())


def test_a_task_cannot_read_the_folder_of_the_agent_nor_start_another_program(
    bench: Bench, folder: Path
) -> None:
    if "landlock" not in bench.backend.isolation_facts().features:
        pytest.skip("the kernel has no Landlock")
    (folder / "node.json").write_text("the token of the node")
    attack = (
        "import os, socket\n"
        f"for path in ({str(folder / 'node.json')!r}, {str(folder / 'task')!r}):\n"
        "    try: print('open', open(path).read())\n"
        "    except OSError as error: print('refused', error.errno)\n"
        "connection = socket.socket(socket.AF_UNIX)\n"
        f"try: connection.connect({str(folder / 'task')!r}); print('connected')\n"
        "except OSError: print('nobody listens')\n"
    )

    async def check() -> str:
        await bench.backend.prepare(IMAGE, BuildLines(), "alpha")
        _, handle = await bench.start(attack)
        await bench.until(handle, Phase.ENDED)
        return (await bench.backend.logs(handle, 0, 0, 1000)).data.decode()

    output = asyncio.run(check())
    assert "token" not in output
    assert "connected" not in output
    assert output.count("refused") == 2


def test_a_starter_ends_with_its_agent(folder: Path) -> None:
    starter = start_starter(folder)
    connection = TaskContainer.wait(folder / "task")
    connection.close()
    assert starter.wait(timeout=60) == 0


def test_an_agent_without_a_container_says_so(folder: Path) -> None:
    with pytest.raises(AgentError, match=r"did not start within 0.05 s"):
        TaskContainer.wait(folder / "task", within_s=0.05)


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        json.dumps({"python": "python", "variables": [], "readable": [], "gpus": []}).encode(),
        b"x" * 2_000_000,
    ],
)
def test_a_container_that_describes_nothing_is_refused(folder: Path, line: bytes) -> None:
    def answer() -> None:
        while True:
            with socket.socket(socket.AF_UNIX) as connection:
                try:
                    connection.connect(str(folder / "task"))
                    connection.sendall(line)
                except (FileNotFoundError, ConnectionRefusedError):
                    continue
                except OSError:
                    return
                return

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(AgentError, match="did not describe its image"):
        TaskContainer.wait(folder / "task", within_s=20)
    thread.join()


def test_the_cards_of_the_container_are_those_of_the_node(folder: Path) -> None:
    smi = folder / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'GPU-1, NVIDIA H100 80GB, SXM, 81559'\n")
    smi.chmod(0o755)
    starter = start_starter(folder, PATH=f"{folder}:{os.environ['PATH']}")
    container = TaskContainer.wait(folder / "task")
    ((uuid, card),) = container.gpus
    assert (uuid, card.model) == ("GPU-1", "NVIDIA H100 80GB, SXM")
    assert card.memory_bytes == 81559 << 20
    container.close()
    starter.wait(timeout=60)


def test_the_readable_folders_of_an_image_leave_out_ours(tmp_path: Path) -> None:
    for name in ("opt/tool", "var/lib/slipway/0", "var/cache"):
        (tmp_path / name).mkdir(parents=True)
    kept = task_starter.folders_beside([str(tmp_path / "var/lib/slipway")], str(tmp_path))
    assert [Path(path).relative_to(tmp_path).as_posix() for path in kept] == ["opt", "var/cache"]
