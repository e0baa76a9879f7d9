"""Virtual environments of projects: built once per digest, published whole, used many times."""

import asyncio
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipway.schemas.agent import EnvironmentSpec
from slipway.schemas.workloads import ReasonCode
from workers.launcher.confinement import Confinement
from workers.launcher.durable import read_json, write_atomically
from workers.launcher.ranks import interpreter_places
from workers.node_agent.backends.base import BuildLog, Prepared
from workers.node_agent.bytecode import compile_rest, first_imports
from workers.node_agent.errors import StartError
from workers.node_agent.folders import NodeFolders, checked_digest
from workers.node_agent.requirement_lines import checked_requirements
from workers.node_agent.settings import AgentSettings
from workers.node_agent.uv_install import (
    OnlyForPip,
    arguments_of_uv,
    settings_of_pip,
    uv_of,
    uv_pip,
)
from workers.node_agent.warm_pool import confined_command

log = logging.getLogger(__name__)
_BUILD_WITHIN_S: Final = 3600.0
_UV_WAITS_S: Final = 180
_LOCK_POLL_S: Final = 0.2
_TAIL_LINES: Final = 12
_PYTHON = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!_-]+)(?:\+[A-Za-z0-9.]+)?")
_LOCKED_CHARACTERS: Final = 262_144
# How the machine reaches its package index; a build is given these and nothing else of ours.
_BUILD_VARIABLES = re.compile(
    r"PIP_\w+|SSL_CERT_(?:FILE|DIR)|(?:REQUESTS|CURL)_CA_BUNDLE|(?:https?|no|all)_proxy",
    re.IGNORECASE,
)


def build_variables() -> dict[str, str]:
    """The variables of this process that a build needs to reach the package index."""
    return {name: value for name, value in os.environ.items() if _BUILD_VARIABLES.fullmatch(name)}


def default_environment(requirements: Path) -> EnvironmentSpec:
    """The environment of tasks that name none, called by what stands in it. Raises StartError."""
    try:
        text = requirements.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _failed(f"{requirements}, the node's own requirements, is unreadable") from error
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    named = f"slipway-environment-1\n{python}\n{checked_requirements(text)}"
    digest = hashlib.sha256(named.encode()).hexdigest()
    return EnvironmentSpec(digest=digest, requirements=text, python=python)


class VirtualEnvironments:
    """The environments on this node's disk. Several agents of one machine may share the folder."""

    def __init__(self, settings: AgentSettings, folders: NodeFolders) -> None:
        self._settings = settings
        self._folder = folders.environments
        self._code = folders.code
        self._cache = folders.root / "pip-cache"
        self._unpacked = folders.unpacked
        self._compiling: dict[Path, asyncio.Task[None]] = {}

    async def ensure(self, spec: EnvironmentSpec, build_log: BuildLog) -> Prepared:
        """The environment with its interpreter, built now if it is not there. Raises StartError."""
        home = self._folder / checked_digest(spec.digest, "environment")
        ready = self._ready(home)
        if ready is not None:
            self._compile_behind(home, Path(ready.runtime))
            return ready
        requirements = checked_requirements(spec.requirements)
        home.mkdir(mode=0o700, exist_ok=True)
        async with _locked(home / "lock"):
            ready = self._ready(home)
            if ready is None:
                await self._build(home, spec, requirements, build_log)
                ready = self._ready(home)
        if ready is None:
            raise _failed("it was gone a moment after it was ready")
        self._compile_behind(home, Path(ready.runtime))
        return ready

    def _ready(self, home: Path) -> Prepared | None:
        found = read_json(home / "ready.json")
        if found is None:
            return None
        python = home / str(found.get("attempt")) / "bin" / "python"
        if not python.exists():
            return None
        os.utime(home / "ready.json")  # the least recently used is removed first
        size_bytes = found.get("size_bytes")
        return Prepared(
            str(python),
            size_bytes=size_bytes if isinstance(size_bytes, int) else None,
            locked=str(found.get("locked", "")),
        )

    async def _build(
        self, home: Path, spec: EnvironmentSpec, requirements: str, build_log: BuildLog
    ) -> None:
        base = await self._interpreter(spec.python)
        attempt, scratch, wanted = await asyncio.to_thread(self._make_room, home, requirements)
        python = attempt / "bin" / "python"
        make = [str(base), "-I", "-m", "venv", "--without-pip", str(attempt)]
        site = _Site(home, scratch, base)
        try:
            await self._run(make, site, build_log)
            if requirements.strip():
                await self._fill(python, wanted, site, build_log)
                await self._import_first(python, site, build_log)
            locked = await self._versions(python, site)
        except StartError:
            await asyncio.to_thread(shutil.rmtree, attempt, ignore_errors=True)
            raise
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        # Tasks run as the users of their projects and reach nothing of it but by a mount.
        attempt.chmod(0o755)
        size_bytes = await asyncio.to_thread(_size_of, attempt)
        build_log.write(f"Ready: {size_bytes >> 20} MiB.\n")
        facts = {"attempt": attempt.name, "size_bytes": size_bytes, "locked": locked}
        write_atomically(home / "ready.json", json.dumps(facts))

    async def _fill(self, python: Path, wanted: Path, site: "_Site", build_log: BuildLog) -> None:
        """Install by uv. pip has the last word: it says what is wrong in words people know."""
        try:
            await self._run(await self._by_uv(python, wanted, site), site, build_log)
        except OnlyForPip as error:
            build_log.write(f"Installing by pip, which is slower than uv: {error}.\n")
        except StartError:
            build_log.write("uv could not install this; trying it with pip.\n")
        else:
            return
        # Our pip, aimed at their interpreter: an environment needs none of its own to be filled.
        install = [
            *(sys.executable, "-I", "-m", "pip", "--python", str(python), "install"),
            *("--no-input", "--disable-pip-version-check", "--no-warn-script-location"),
            *("--progress-bar", "off", "--root-user-action", "ignore", "--no-compile"),
            *("-r", str(wanted)),
        ]
        await self._run(install, site, build_log)

    async def _by_uv(self, python: Path, wanted: Path, site: "_Site") -> list[str]:
        """How uv installs these, from where pip would. Raises OnlyForPip."""
        uv = uv_of(sys.executable)
        if uv is None:
            raise OnlyForPip("it is not installed beside the agent")
        listed = await self._answer([sys.executable, "-I", "-m", "pip", "config", "list"], site)
        options = arguments_of_uv(settings_of_pip(listed))
        return [*uv_pip(uv, "install", str(python), self._unpacked), *options, "-r", str(wanted)]

    async def _import_first(self, python: Path, site: "_Site", build_log: BuildLog) -> None:
        """Compile what tasks import first. What cannot be imported is the affair of tasks."""
        build_log.write("Compiling what tasks import first.\n")

        async def one(command: list[str]) -> None:
            with suppress(StartError):
                await self._answer(command, site)

        async with asyncio.TaskGroup() as beside:
            for command in first_imports(python):
                beside.create_task(one(command))

    def _compile_behind(self, home: Path, python: Path) -> None:
        """See to it that the rest is compiled too, without anybody waiting for it."""
        # One that is built anew has another folder: what was done about the old one is of no use.
        if python not in self._compiling and not (home / "compiled").exists():
            task = asyncio.create_task(self._compile(home, python))
            self._compiling[python] = task

    async def _compile(self, home: Path, python: Path) -> None:
        """Compile what is not compiled yet; goes on where it was broken off."""
        scratch = home / f"{python.parent.parent.name}.tmp"
        try:
            async with _locked(home / "compile.lock"):
                scratch.mkdir(mode=0o700, exist_ok=True)
                await self._answer(compile_rest(python), _Site(home, scratch, python))
                facts = read_json(home / "ready.json") or {}
                size_bytes = await asyncio.to_thread(_size_of, python.parent.parent)
                facts |= {"size_bytes": size_bytes}
                write_atomically(home / "ready.json", json.dumps(facts))
                (home / "compiled").touch()
        except (StartError, OSError) as error:
            log.warning("the rest of %s could not be compiled: %s", home.name[:12], error)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    async def _versions(self, python: Path, site: "_Site") -> str:
        """The exact versions installed; empty when another node could not install the same."""
        uv = uv_of(sys.executable)
        freeze = [
            *(sys.executable, "-I", "-m", "pip", "--python", str(python), "freeze"),
            "--disable-pip-version-check",
        ]
        if uv is not None:
            freeze = uv_pip(uv, "freeze", str(python), self._unpacked)
        return locked_requirements(await self._answer(freeze, site))

    def _make_room(self, home: Path, requirements: str) -> tuple[Path, Path, Path]:
        """Folders for a new attempt to build, in place of what earlier ones left unfinished."""
        for old in home.glob("attempt-*"):
            shutil.rmtree(old, ignore_errors=True)
        (home / "compiled").unlink(missing_ok=True)
        attempt = home / f"attempt-{secrets.token_hex(4)}"
        scratch = home / f"{attempt.name}.tmp"
        for folder in (attempt, scratch, self._cache, self._unpacked):
            folder.mkdir(mode=0o700, exist_ok=True)
        wanted = home / "requirements.txt"
        wanted.write_text(requirements, "utf-8")
        return attempt, scratch, wanted

    async def _interpreter(self, version: str) -> Path:
        wanted = _PYTHON.fullmatch(version)
        if wanted is None:
            raise _failed(f"{version[:50]!r} is no version of Python such as 3.11")
        name = f"{wanted[1]}.{wanted[2]}"
        own = str(self._settings.python or sys.executable)
        candidates = [own, shutil.which(f"python{name}")]
        for candidate in candidates:
            if candidate is not None and await _version_of(candidate) == name:
                return Path(candidate)
        has = await _version_of(own)
        raise _failed(f"this node has no Python {name} (it has {has or 'none'})")

    async def _answer(self, command: list[str], site: "_Site") -> str:
        """Run one step of a build whose output is not for the log; returns that."""
        said = _Lines()
        await self._run(command, site, said)
        return said.text.partition("\n")[2]

    async def _run(self, command: list[str], site: "_Site", build_log: BuildLog) -> None:
        """Run one step of a build, confined to its folder; the log has the command line first."""
        if self._settings.confine:
            places = (*interpreter_places(str(site.base)), *interpreter_places(sys.executable))
            writable = (str(site.home), str(self._cache), str(self._unpacked))
            confinement = Confinement(writable, (*places, *self._settings.readable))
            command = confined_command(self._code, confinement, command)
        environment = {
            **build_variables(),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(site.scratch),
            "TMPDIR": str(site.scratch),
            "LANG": "C.UTF-8",
            "PIP_CACHE_DIR": str(self._cache),
            "UV_HTTP_TIMEOUT": str(_UV_WAITS_S),
            "MLFLOW_DISABLE_TELEMETRY": "true",
        }
        build_log.write(f"$ {' '.join(command[command.index('--') + 1 :] or command)}\n")
        process = await asyncio.create_subprocess_exec(
            *command,
            env=environment,
            cwd=site.home,
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


@dataclass(frozen=True)
class _Site:
    """Where a step of a build runs: the environment's folder, one for scratch, the interpreter."""

    home: Path
    scratch: Path
    base: Path


class _Lines:
    """Output of a step that is not for the log."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        """Add text."""
        self.text += text


def locked_requirements(frozen: str) -> str:
    """What `pip freeze` said as requirements any node can install; empty if one of them is not.

    The local part of a version (`+cpu`) goes: it says which build suited this machine.
    """
    lines: list[str] = []
    for line in frozen.splitlines():
        pinned = _PINNED.fullmatch(line.strip())
        if pinned is not None:
            lines.append(f"{pinned[1]}=={pinned[2]}")
        elif " @ https://" in line:
            lines.append(line.strip())
        elif " @ " in line or line.startswith("-e "):
            return ""
    text = "\n".join(lines)
    return text if len(text) <= _LOCKED_CHARACTERS else ""


def _size_of(folder: Path) -> int:
    return sum(
        os.lstat(os.path.join(root, name)).st_size  # noqa: PTH118 - tens of thousands of them
        for root, _, names in os.walk(folder)
        for name in names
    )


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
