"""The steps of a build: commands, each with leave to reach what it needs and nothing else."""

import asyncio
import os
import re
import secrets
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipway.schemas.workloads import ReasonCode
from workers.launcher.confinement import Confinement
from workers.launcher.processes import kill_marked
from workers.node_agent.backends.base import BuildLog
from workers.node_agent.errors import StartError
from workers.node_agent.index_hosts import HostPort
from workers.node_agent.settings import AgentSettings
from workers.node_agent.warm_pool import confined_command

_BUILD_WITHIN_S: Final = 3600.0
_UV_WAITS_S: Final = 180
_TAIL_LINES: Final = 12
_SHOWN_ARGUMENT: Final = 200
_MARK: Final = "SLIPWAY_BUILD_STEP"
# How the machine reaches its package index; a build is given these and nothing else of ours.
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
class Step:
    """One command of a build, and what it may reach.

    With `project`, it runs code that this project chose. `network` says whether it may connect to
    `hosts`; without it, to nothing.
    """

    command: list[str]
    scratch: Path
    writable: tuple[Path, ...] = ()
    readable: tuple[str, ...] = ()
    project: str | None = None
    network: bool = False
    hosts: tuple[HostPort, ...] = ()


class BuildSteps:
    """Runs steps of builds on this node."""

    def __init__(self, settings: AgentSettings, code: Path) -> None:
        self._settings = settings
        self._code = code

    def _step_command(self, step: Step) -> list[str]:
        """The command line that gives up what the step does not need, and then runs it."""
        if not self._settings.confine:
            return step.command
        writable = (str(step.scratch), *map(str, step.writable))
        readable = (*step.readable, *self._settings.readable)
        return confined_command(self._code, Confinement(writable, readable), step.command)

    async def answer(self, step: Step) -> str:
        """Run a step whose output is not for the log; returns the output. Raises StepFailed."""
        lines = _Lines()
        await self.run(step, lines)
        return lines.text.partition("\n")[2]

    async def run(self, step: Step, build_log: BuildLog) -> None:
        """Run a step to its end; the log has the command line first. Raises StepFailed."""
        shown = (part if len(part) < _SHOWN_ARGUMENT else "…" for part in step.command)
        build_log.write(f"$ {' '.join(shown)}\n")
        mark = secrets.token_hex(8)
        process = await asyncio.create_subprocess_exec(
            *self._step_command(step),
            env={**_environment(step), _MARK: mark},
            cwd=step.scratch,
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
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            # What a step leaves running could change the result after it was checked.
            await asyncio.to_thread(kill_marked, f"{_MARK}={mark}".encode())
        if process.returncode:
            raise _failed("its last lines were:\n" + "\n".join(last))


def _environment(step: Step) -> dict[str, str]:
    return {
        **(build_variables() if step.network else {}),
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(step.scratch),
        "TMPDIR": str(step.scratch),
        "LANG": "C.UTF-8",
        "PIP_CACHE_DIR": str(step.scratch / "pip-cache"),
        "UV_HTTP_TIMEOUT": str(_UV_WAITS_S),
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }


class _Lines:
    """Output of a step that is not for the log."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        """Add text."""
        self.text += text


async def _follow(process: asyncio.subprocess.Process, build_log: BuildLog) -> list[str]:
    assert process.stdout is not None  # noqa: S101 - a pipe was asked for
    last: list[str] = []
    while data := await process.stdout.read(1 << 16):
        text = data.decode("utf-8", errors="replace")
        build_log.write(text)
        last = [*last, *filter(str.strip, text.splitlines())][-_TAIL_LINES:]
    await process.wait()
    return last


def _failed(why: str) -> StepFailed:
    return StepFailed(f"The environment could not be built: {why}.", ReasonCode.ENVIRONMENT_FAILED)
