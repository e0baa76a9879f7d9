"""The steps of a build: commands, each with leave to reach what it needs and nothing else.

A step that runs code of a project is inside the boundary of the node's isolation level: in a
sandbox without network but for the hosts it names, as the project's Unix user where the agent is
root. Wheels are installed by the agent's own tools, which Landlock confines: hard links into the
cache of wheels do not work across the mounts of a sandbox.
"""

import asyncio
import codecs
import os
import re
import secrets
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipway.schemas.workloads import ReasonCode
from workers.launcher.confinement import Confinement
from workers.launcher.mounts import View
from workers.launcher.processes import kill_marked
from workers.launcher.service_forwarder import Service
from workers.node_agent.backends.base import BuildLog
from workers.node_agent.build_disk import BuildDisk, BuildTooLarge
from workers.node_agent.errors import StartError
from workers.node_agent.index_hosts import HostPort
from workers.node_agent.isolation import Isolation, ProjectUser
from workers.node_agent.ownership import chown_tree
from workers.node_agent.settings import AgentSettings
from workers.node_agent.warm_pool import confined_command

# About a third of the share of a task: on a busy machine it has to come to an end, too.
_NICE_BEHIND: Final = 5
_BUILD_WITHIN_S: Final = 3600.0
_UV_WAITS_S: Final = 180
_TAIL_LINES: Final = 12
_TAIL_CHARACTERS: Final = 16_384
_SHOWN_ARGUMENT: Final = 200
_SHM_BYTES: Final = 256 << 20
_MARK: Final = "SLIPWAY_BUILD_STEP"
# Variables for reaching the package index. A build gets no others of this process.
_BUILD_VARIABLES = re.compile(
    r"PIP_\w+|SSL_CERT_(?:FILE|DIR)|(?:REQUESTS|CURL)_CA_BUNDLE|(?:https?|no|all)_proxy",
    re.IGNORECASE,
)


def build_variables() -> dict[str, str]:
    """The variables of this process that a build needs to reach the package index."""
    return {name: value for name, value in os.environ.items() if _BUILD_VARIABLES.fullmatch(name)}


class StepFailed(StartError):
    """A command of a build ended with another status than 0, or took too long."""


@dataclass(frozen=True)
class BuildStep:
    """One command of a build, and its access rights.

    With `project`, it runs code that this project chose. With `network` it may connect to `hosts`,
    without it to nothing. `behind` others, it has a lower CPU priority.
    """

    command: list[str]
    scratch: Path
    writable: tuple[Path, ...] = ()
    readable: tuple[str, ...] = ()
    project: str | None = None
    network: bool = False
    hosts: tuple[HostPort, ...] = ()
    behind: bool = False


class BuildSteps:
    """Runs steps of builds on this node."""

    def __init__(
        self, settings: AgentSettings, code: Path, isolation: Isolation, disk_bytes: int
    ) -> None:
        self._settings = settings
        self._disk_bytes = disk_bytes
        # Running steps, for the disk guard.
        self.running: set[BuildDisk] = set()
        self._code = code
        self._isolation = isolation

    def _step_command(self, step: BuildStep, user: ProjectUser | None) -> list[str]:
        """The command line that gives up what the step does not need, and then runs it."""
        level = self._isolation.level
        if level == "none":
            return step.command
        writable = (str(step.scratch), *map(str, step.writable))
        readable = (*step.readable, *self._settings.readable)
        if level != "namespaces" or step.project is None:
            return confined_command(self._code, Confinement(writable, readable), step.command)
        view = View(
            writable=writable,
            readable=(*readable, *_files_of_variables()),
            tmp=str(step.scratch),
            home=str(step.scratch),
            shm_bytes=_SHM_BYTES,
            offline="network" in self._isolation.features,
        )
        services = [Service(host.host, host.port) for host in step.hosts]
        return self._isolation.command(self._code, view, step.command, user=user, services=services)

    def _user(self, step: BuildStep) -> ProjectUser | None:
        """Return the user that a step runs as, and make it the owner of the writable folders."""
        if step.project is None:
            return None
        user = self._isolation.user_of(step.project)
        if user is not None:
            for folder in (step.scratch, *step.writable):
                chown_tree(folder, user.uid, user.gid)
        return user

    async def answer(self, step: BuildStep) -> str:
        """Run a step and return its output, which is not logged. Raises StepFailed."""
        lines = _Lines()
        await self.run(step, lines)
        return lines.text.partition("\n")[2]

    async def run(self, step: BuildStep, build_log: BuildLog) -> None:
        """Run a step to its end. The log starts with the command line.

        Raises StepFailed, or BuildTooLarge.
        """
        shown = (part if len(part) < _SHOWN_ARGUMENT else "…" for part in step.command)
        build_log.write(f"$ {' '.join(shown)}\n")
        mark = secrets.token_hex(8)
        user = await asyncio.to_thread(self._user, step)
        # With namespaces, the agent's user creates the sandbox, which switches to the project's.
        outside = user if self._isolation.level == "users" else None
        process = await asyncio.create_subprocess_exec(
            *self._step_command(step, user),
            env={**_environment(step), _MARK: mark},
            cwd=step.scratch,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
            user=outside.uid if outside else None,
            group=outside.gid if outside else None,
            extra_groups=[] if outside else None,
        )
        if step.behind:
            _lower_priority(process.pid)
        # Steps without a project write to the wheel cache, which does not count as theirs.
        own = (step.scratch, *(step.writable if step.project is not None else ()))
        disk = BuildDisk(own, process.pid, f"{_MARK}={mark}".encode(), self._disk_bytes)
        self.running.add(disk)
        watching = asyncio.create_task(disk.watch())
        try:
            last = await asyncio.wait_for(_follow(process, build_log), _BUILD_WITHIN_S)
        except TimeoutError:
            minutes = _BUILD_WITHIN_S / 60
            raise _failed(f"the build took longer than {minutes:.0f} minutes") from None
        finally:
            watching.cancel()
            self.running.discard(disk)
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            # A process that a step leaves running could change the result after verification.
            await asyncio.to_thread(kill_marked, f"{_MARK}={mark}".encode())
        if disk.message:
            build_log.write(f"{disk.message}\n")
            raise BuildTooLarge(disk.message)
        if process.returncode:
            raise _failed("its last lines were:\n" + "\n".join(last))


def _lower_priority(pid: int) -> None:
    """Lower the CPU priority of a process with a session of its own, see sched(7), autogroup."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, _NICE_BEHIND)
        Path(f"/proc/{pid}/autogroup").write_text(str(_NICE_BEHIND), "ascii")


def _environment(step: BuildStep) -> dict[str, str]:
    variables = build_variables() if step.network else {}
    return {
        **variables,
        **_certificates_of_git(variables),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(step.scratch),
        "TMPDIR": str(step.scratch),
        "LANG": "C.UTF-8",
        "PIP_CACHE_DIR": str(step.scratch / "pip-cache"),
        "UV_HTTP_TIMEOUT": str(_UV_WAITS_S),
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


def _certificates_of_git(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variable that has git trust the authorities that pip trusts."""
    names = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
    files = [variables[name] for name in names if variables.get(name)]
    return {"GIT_SSL_CAINFO": files[0]} if files else {}


def _files_of_variables() -> list[str]:
    """Files and folders that the variables of a build name: certificates, wheels, settings."""
    words = (word for value in build_variables().values() for word in value.split())
    return [word for word in words if word.startswith("/") and os.path.exists(word)]  # noqa: PTH110


class _Lines:
    """Output of a step that is not for the log."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        """Add text."""
        self.text += text


async def _follow(process: asyncio.subprocess.Process, build_log: BuildLog) -> list[str]:
    assert process.stdout is not None  # noqa: S101 - a pipe, see above
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    end = ""
    while data := await process.stdout.read(1 << 16):
        text = decoder.decode(data)
        build_log.write(text)
        end = (end + text)[-_TAIL_CHARACTERS:]
    build_log.write(decoder.decode(b"", final=True))
    await process.wait()
    return [line for line in end.splitlines() if line.strip()][-_TAIL_LINES:]


def _failed(why: str) -> StepFailed:
    return StepFailed(f"The environment could not be built: {why}.", ReasonCode.ENVIRONMENT_FAILED)
