"""What every back end promises; a back end's test file inherits this and says how it is made."""

import asyncio
import json
import os
import re
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import slipway
from slipway.schemas.agent import TaskKey
from tests.workers.fake_portal import GIB, make_spec
from workers import launcher
from workers.launcher.journal import Journal
from workers.launcher.launch import StateFolder, StopRequest
from workers.launcher.lease import Lease
from workers.launcher.processes import uptime_s
from workers.node_agent.backends.base import Backend, LaunchSpec, Phase
from workers.node_agent.folders import NodeFolders, handle_of

Answer = TypeVar("Answer")
# The node's name, and what its workloads' names begin with: the processes of `-n` share an engine.
BENCH = f"bench-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}"
COUNTING = """
import os, pathlib
with open(pathlib.Path(os.environ["SLIPWAY_PERSISTENT_DIR"], "starts"), "a") as file:
    file.write("started\\n")
"""
WAITING = COUNTING + "print('ready', flush=True)\nimport time; time.sleep(600)\n"


class Silence:
    """A build log nobody reads."""

    def write(self, text: str) -> None:
        """Forget it."""


class BuildLines:
    """A build log that is read."""

    def __init__(self) -> None:
        self.text = ""
        self.running = asyncio.Event()

    def write(self, text: str) -> None:
        """Add text."""
        self.text += text
        if "Running in" in text:
            self.running.set()

    def labels(self) -> list[str]:
        """The labels of builds of images, by which an engine finds all that they leave."""
        return re.findall(r"slipway\.build=\w+", self.text)


class Bench:
    """A back end under test, and what is needed to run tasks on it."""

    def __init__(self, backend: Backend, folders: NodeFolders) -> None:
        self.backend = backend
        self.folders = folders
        self.handles: list[str] = []
        Lease(folders.shared).renew(sent_at_s=uptime_s(), lease_s=3600)

    async def order(self, script: str, **changes: Any) -> LaunchSpec:
        """An order to run a script."""
        key = TaskKey(task_id=f"task{len(self.handles)}", epoch=1)
        handle = handle_of(key)
        self.handles.append(handle)
        folder = self.folders.task(handle)
        for path in (folder.state, folder.work, folder.home, folder.tmp):
            path.mkdir(parents=True, exist_ok=True)
        (folder.work / "a.py").write_text(script)
        persistent = self.folders.persistent / key.task_id
        persistent.mkdir(exist_ok=True)
        prepared = await self.backend.prepare(None, Silence())
        return LaunchSpec(
            key=key,
            workload_id=f"{BENCH}-{key.task_id}",
            spec=make_spec("python", "a.py", backend=self.backend.name, **changes),
            folder=folder,
            persistent=persistent,
            address="127.0.0.1",
            runtime=prepared.runtime,
            readable=prepared.readable,
        )

    async def start(self, script: str, **changes: Any) -> tuple[LaunchSpec, str]:
        """Start a script."""
        order = await self.order(script, **changes)
        return order, await self.backend.start(order)

    async def until(self, handle: str, phase: Phase, *, within_s: float = 60.0) -> None:
        """Wait for a phase."""
        await eventually(
            lambda: self._is(handle, phase), within_s=within_s, what=f"{handle} to be {phase}"
        )

    async def _is(self, handle: str, phase: Phase) -> bool:
        return (await self.backend.phase(handle)).phase is phase

    async def until_said(self, handle: str, words: str) -> None:
        """Wait until the output of rank 0 holds some words."""

        async def is_printed() -> bool:
            chunk = await self.backend.logs(handle, 0, 0, 1 << 20)
            return words.encode() in chunk.data

        await eventually(is_printed, within_s=60, what=f"{handle} to say {words}")

    def end(self, order: LaunchSpec) -> dict[str, Any]:
        """The last event of the journal."""
        return Journal(StateFolder(order.folder.state).journal).last() or {}

    def starts(self, order: LaunchSpec) -> int:
        """How often the script was started."""
        return len((order.persistent / "starts").read_text().splitlines())


async def eventually(look: Callable[[], Awaitable[bool]], *, within_s: float, what: str) -> None:
    """Wait until `look` is true."""
    deadline = time.monotonic() + within_s
    while not await look():
        assert time.monotonic() < deadline, f"did not happen within {within_s} s: {what}"
        await asyncio.sleep(0.02)


class BackendContract:
    """The promises. Subclasses give the fixture `bench` and the two ways to look from outside."""

    def kill_supervisor(self, bench: Bench, order: LaunchSpec, handle: str) -> None:
        """kill -9 of what supervises the task."""
        raise NotImplementedError

    def renewed(self, bench: Bench) -> Backend:
        """Another object of the same back end, as a new agent would make it."""
        raise NotImplementedError

    def test_a_task_runs_to_its_end(self, bench: Bench) -> None:
        async def check() -> None:
            order, handle = await bench.start(COUNTING + "print('done')")
            await bench.until(handle, Phase.ENDED)
            assert bench.end(order)["reason"] == "completed"
            assert (await bench.backend.logs(handle, 0, 0, 100)).data == b"done\n"
            assert (await bench.backend.logs(handle, 0, 2, 2)).data == b"ne"
            assert (await bench.backend.logs(handle, 0, 5, 100)).data == b""

        asyncio.run(check())

    def test_started_twice_it_runs_once(self, bench: Bench) -> None:
        async def check() -> None:
            order, handle = await bench.start(WAITING)
            await bench.until_said(handle, "ready")
            assert await bench.backend.start(order) == handle
            assert await self.renewed(bench).start(order) == handle
            await bench.backend.stop(handle, StopRequest("user", 1.0))
            await bench.until(handle, Phase.ENDED)
            assert bench.starts(order) == 1

        asyncio.run(check())

    def test_what_nobody_knows_is_lost_and_can_be_stopped(self, bench: Bench) -> None:
        async def check() -> None:
            backend = bench.backend
            observation = await backend.phase("task-of-nobody-1")
            assert observation.phase is Phase.LOST
            assert observation.never_started
            await backend.stop("task-of-nobody-1", StopRequest("user", 1.0))
            await backend.remove("task-of-nobody-1")
            assert not (await backend.logs("task-of-nobody-1", 0, 0, 10)).data

        asyncio.run(check())

    def test_it_stops_with_the_reason_given_also_twice(self, bench: Bench) -> None:
        async def check() -> None:
            order, handle = await bench.start(WAITING, procs=2)
            await bench.until_said(handle, "ready")
            await bench.backend.stop(handle, StopRequest("budget", 2.0))
            await bench.backend.stop(handle, StopRequest("budget", 2.0))
            await bench.until(handle, Phase.ENDED)
            assert bench.end(order)["reason"] == "budget"
            await bench.backend.stop(handle, StopRequest("user", 1.0))
            await bench.backend.remove(handle)
            await bench.backend.remove(handle)
            await bench.backend.stop(handle, StopRequest("user", 1.0))
            assert (await bench.backend.phase(handle)).phase is Phase.ENDED

        asyncio.run(check())

    def test_a_new_agent_finds_what_an_old_one_started(self, bench: Bench) -> None:
        async def check() -> None:
            order, handle = await bench.start(WAITING)
            await bench.until_said(handle, "ready")
            other = self.renewed(bench)
            assert (await other.phase(handle)).phase is Phase.RUNNING
            await other.stop(handle, StopRequest("idle", 1.0))
            await bench.until(handle, Phase.ENDED)
            assert bench.end(order)["reason"] == "idle"

        asyncio.run(check())

    def test_a_killed_supervisor_means_lost_and_nothing_runs_on(self, bench: Bench) -> None:
        async def check() -> None:
            order, handle = await bench.start(
                "import os, time\n"
                "path = os.path.join(os.environ['SLIPWAY_PERSISTENT_DIR'], 'beat')\n"
                "def beat():\n    open(path, 'w').write(str(time.time())); time.sleep(0.01)\n"
                "beat()\n"
                "print('ready', flush=True)\n"
                "while True: beat()\n"
            )
            await bench.until_said(handle, "ready")
            self.kill_supervisor(bench, order, handle)
            await bench.until(handle, Phase.LOST)
            observation = await bench.backend.phase(handle)
            assert observation.detail
            assert not observation.never_started
            await bench.backend.remove(handle)
            beat = order.persistent / "beat"
            before = beat.read_text()
            await asyncio.sleep(0.2)  # long enough for twenty beats of what must not live
            assert beat.read_text() == before

        asyncio.run(check())

    def test_a_failure_is_told_with_its_reason(self, bench: Bench) -> None:
        async def check() -> None:
            order, handle = await bench.start("import nothing_of_that_name", procs=2)
            await bench.until(handle, Phase.ENDED)
            end = bench.end(order)
            assert end["reason"] == "import_error"
            assert "nothing_of_that_name" in end["message"]
            assert len(end["ranks"]) == 2

        asyncio.run(check())

    def test_memory_is_limited(self, bench: Bench) -> None:
        async def check() -> None:
            order, handle = await bench.start(
                "blocks = []\nwhile True:\n    blocks.append(bytearray(8 << 20))\n",
                resources={"cpu_millis": 1000, "memory_bytes": GIB // 8},
            )
            await bench.until(handle, Phase.ENDED)
            assert bench.end(order)["reason"] == "oom", bench.end(order)

        asyncio.run(check())

    def test_only_what_was_ordered_is_in_the_environment(self, bench: Bench) -> None:
        async def check() -> None:
            _, handle = await bench.start(
                "import json, os\nprint(json.dumps([dict(os.environ), os.getcwd(),"
                " os.listdir('.')]))",
                env={"MINE": "1"},
            )
            await bench.until(handle, Phase.ENDED)
            output = (await bench.backend.logs(handle, 0, 0, 1 << 20)).data
            env, _, files = json.loads(output)
            assert files == ["a.py"]
            assert env["MINE"] == "1"
            known = {"PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "SHELL", "LANG", "MINE"}
            known |= {"CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "GLOO_SOCKET_IFNAME", "LC_CTYPE"}
            others = {
                name
                for name in set(env) - known
                if not name.startswith(("SLIPWAY_", "TORCHELASTIC_", "TORCH_NCCL_", "ROLE_"))
                and not name.endswith(("RANK", "WORLD_SIZE"))
            }
            assert others == {"MASTER_ADDR", "MASTER_PORT"}

        asyncio.run(check())

    def test_a_task_writes_into_its_own_folders_alone(self, bench: Bench) -> None:
        async def check() -> None:
            script = (
                "import os, tempfile\n"
                "def can(path):\n"
                "    try:\n"
                "        with open(os.path.join(path, 'x'), 'w'): return True\n"
                "    except OSError: return False\n"
                "places = ['.', os.environ['HOME'], tempfile.gettempdir(),"
                " os.environ['SLIPWAY_PERSISTENT_DIR'], '/', '/etc', '/usr', '/opt', '/var/lib']\n"
                "print([can(place) for place in places])\n"
            )
            _, handle = await bench.start(script)
            await bench.until(handle, Phase.ENDED)
            output = (await bench.backend.logs(handle, 0, 0, 1000)).data.decode()
            assert output.strip() == str([True] * 4 + [False] * 5)

        asyncio.run(check())


def node_folders(data_dir: Path) -> NodeFolders:
    """The folders of a node, ready for a back end."""
    folders = NodeFolders(data_dir)
    folders.prepare(
        launcher=Path(launcher.__path__[0]).resolve(), sdk=Path(slipway.__path__[0]).resolve()
    )
    return folders
