"""Virtual environments of projects: built once per digest, published whole, used many times."""

import asyncio
import fcntl
import json
import logging
import os
import re
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from slipway.schemas.agent import EnvironmentSpec
from slipway.schemas.workloads import ReasonCode
from workers.launcher.confinement import Confinement
from workers.launcher.durable import read_json, write_atomically
from workers.launcher.ranks import interpreter_places
from workers.node_agent.backends.base import BuildLog
from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders, checked_digest
from workers.node_agent.requirement_lines import checked_requirements
from workers.node_agent.settings import AgentSettings
from workers.node_agent.warm_pool import confined_command

log = logging.getLogger(__name__)
_BUILD_WITHIN_S: Final = 3600.0
_LOCK_POLL_S: Final = 0.2
_TAIL_LINES: Final = 12
_PYTHON = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
# How the machine reaches its package index; a build is given these and nothing else of ours.
_BUILD_VARIABLES = re.compile(
    r"PIP_\w+|SSL_CERT_(?:FILE|DIR)|(?:REQUESTS|CURL)_CA_BUNDLE|(?:https?|no|all)_proxy",
    re.IGNORECASE,
)


def build_variables() -> dict[str, str]:
    """The variables of this process that a build needs to reach the package index."""
    return {name: value for name, value in os.environ.items() if _BUILD_VARIABLES.fullmatch(name)}


class VirtualEnvironments:
    """The environments on this node's disk. Several agents of one machine may share the folder."""

    def __init__(self, settings: AgentSettings, folders: NodeFolders) -> None:
        self._settings = settings
        self._folder = folders.environments
        self._code = folders.code
        self._cache = folders.root / "pip-cache"

    async def ensure(self, spec: EnvironmentSpec, build_log: BuildLog) -> Path:
        """The interpreter of the environment, built now if it is not there. Raises StartError."""
        home = self._folder / checked_digest(spec.digest, "environment")
        python = self._ready(home)
        if python is not None:
            return python
        requirements = checked_requirements(spec.requirements)
        home.mkdir(mode=0o700, exist_ok=True)
        async with _locked(home / "lock"):
            python = self._ready(home)
            if python is None:
                python = await self._build(home, spec, requirements, build_log)
        return python

    def _ready(self, home: Path) -> Path | None:
        found = read_json(home / "ready.json")
        if found is None:
            return None
        python = home / str(found.get("attempt")) / "bin" / "python"
        if not python.exists():
            return None
        os.utime(home / "ready.json")  # the least recently used is removed first
        return python

    async def _build(
        self, home: Path, spec: EnvironmentSpec, requirements: str, build_log: BuildLog
    ) -> Path:
        base = await self._interpreter(spec.python)
        attempt, scratch, wanted = await asyncio.to_thread(self._make_room, home, requirements)
        python = attempt / "bin" / "python"
        make = [str(base), "-I", "-m", "venv", "--without-pip", str(attempt)]
        # Our pip, aimed at their interpreter: an environment needs none of its own to be filled.
        fill = [
            *(sys.executable, "-I", "-m", "pip", "--python", str(python), "install"),
            *("--no-input", "--disable-pip-version-check", "--no-warn-script-location"),
            *("--progress-bar", "off", "--root-user-action", "ignore", "-r", str(wanted)),
        ]
        try:
            await self._run(make, home, scratch, base, build_log)
            if requirements.strip():
                await self._run(fill, home, scratch, base, build_log)
        except StartError:
            await asyncio.to_thread(shutil.rmtree, attempt, ignore_errors=True)
            raise
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        write_atomically(home / "ready.json", json.dumps({"attempt": attempt.name}))
        return python

    def _make_room(self, home: Path, requirements: str) -> tuple[Path, Path, Path]:
        """Folders for a new attempt to build, in place of what earlier ones left unfinished."""
        for old in home.glob("attempt-*"):
            shutil.rmtree(old, ignore_errors=True)
        attempt = home / f"attempt-{secrets.token_hex(4)}"
        scratch = home / f"{attempt.name}.tmp"
        for folder in (attempt, scratch, self._cache):
            folder.mkdir(mode=0o700, exist_ok=True)
        wanted = home / "requirements.txt"
        wanted.write_text(requirements, "utf-8")
        return attempt, scratch, wanted

    async def _interpreter(self, version: str) -> Path:
        wanted = _PYTHON.fullmatch(version)
        if wanted is None:
            raise _failed(f"{version[:50]!r} is no version of Python such as 3.11")
        name = f"{wanted[1]}.{wanted[2]}"
        candidates = [str(self._settings.python), shutil.which(f"python{name}")]
        for candidate in candidates:
            if candidate is not None and await _version_of(candidate) == name:
                return Path(candidate)
        has = await _version_of(str(self._settings.python))
        raise _failed(f"this node has no Python {name} (it has {has or 'none'})")

    async def _run(
        self, command: list[str], home: Path, scratch: Path, base: Path, build_log: BuildLog
    ) -> None:
        """Run one step of a build, confined to its folder, its output going to the log."""
        if self._settings.confine:
            places = (*interpreter_places(str(base)), *interpreter_places(sys.executable))
            writable = (str(home), str(self._cache))
            confinement = Confinement(writable, (*places, *self._settings.readable))
            command = confined_command(self._code, confinement, command)
        environment = {
            **build_variables(),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(scratch),
            "TMPDIR": str(scratch),
            "LANG": "C.UTF-8",
            "PIP_CACHE_DIR": str(self._cache),
        }
        build_log.write(f"$ {' '.join(command[command.index('--') + 1 :] or command)}\n")
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            cwd=home,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
        try:
            last = await asyncio.wait_for(_follow(process, build_log), _BUILD_WITHIN_S)
        except TimeoutError:
            minutes = _BUILD_WITHIN_S / 60
            raise _failed(f"the build took longer than {minutes:.0f} minutes") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, 9)
                await process.wait()
        if process.returncode:
            raise _failed("its last lines were:\n" + "\n".join(last))


async def _follow(process: asyncio.subprocess.Process, build_log: BuildLog) -> list[str]:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    last: list[str] = []
    while data := await process.stdout.read(1 << 16):
        text = data.decode("utf-8", errors="replace")
        build_log.write(text)
        last = [*last, *filter(str.strip, text.splitlines())][-_TAIL_LINES:]
    await process.wait()
    return last


async def _version_of(python: str) -> str | None:
    try:
        process = await asyncio.create_subprocess_exec(
            *(python, "-I", "-S", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return None
    output, _ = await process.communicate()
    return output.decode("ascii", errors="replace").strip() or None


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Hold a lock across processes; one that dies lets go of it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _failed(why: str) -> StartError:
    return StartError(f"The environment could not be built: {why}.", ReasonCode.ENVIRONMENT_FAILED)
