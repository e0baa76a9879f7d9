"""Packages of conda: solved or locked, downloaded, and installed into an empty environment.

Each environment of conda belongs to one project: every step is inside of the boundary of builds
from source. Archives are downloaded once on a node, and only the agent stores them, by their
digests. No code of a package runs in these steps.
"""

import asyncio
import importlib.util
import json
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from slipway.requirement_files.conda_packages import (
    EXPLICIT,
    CondaEnvironment,
    LockedArchive,
    archive_of,
    check_variables,
)
from slipway.schemas.workloads import ReasonCode
from workers.node_agent.backends.base import BuildLog
from workers.node_agent.build_steps import BuildSteps, build_variables
from workers.node_agent.conda_archives import CondaArchives, WrongDigest
from workers.node_agent.errors import StartError
from workers.node_agent.gpus import cuda_version
from workers.node_agent.index_hosts import channel_hosts
from workers.node_agent.installation import LOCKED_CHARACTERS, Site, read_text

_SCRIPT: Final = Path(__file__).with_name("conda_script.py")
# The launcher and the SDK run in the interpreter of a task.
_OLDEST: Final = 11
_FILES_OF_META: Final = 64 << 20


@dataclass(frozen=True)
class CondaPlan:
    """Packages to install: those of an environment, and exact ones of another node.

    `locked` is empty if no node with the same processor has built it. `pip` are exact versions of
    packages of pip that belong to them.
    """

    environment: CondaEnvironment
    locked: tuple[LockedArchive, ...] = ()
    pip: str = ""


@dataclass(frozen=True)
class CondaInstallation:
    """Installed packages: the minor version of their Python, and all archives."""

    python: str
    archives: tuple[LockedArchive, ...]

    def locked(self, pip: str) -> str:
        """Return the exact packages, for other nodes. Empty if they are too many for a report."""
        lines = [f"# platform: {machine_of_conda()}", EXPLICIT]
        lines += [archive.line for archive in self.archives]
        text = "\n".join([*lines, *pip.splitlines()])
        return text if len(text) <= LOCKED_CHARACTERS else ""


def machine_of_conda() -> str:
    """Return the platform of this machine as conda names it, with the driver of CUDA if any."""
    name = {"x86_64": "linux-64", "arm64": "linux-aarch64"}.get(platform.machine(), "")
    return (name or f"linux-{platform.machine()}") + (" cuda" if cuda_version() else "")


def plan_of(conda: str, locked: str) -> CondaPlan:
    """Return the plan for an environment of the portal. Raises StartError for an invalid one."""
    try:
        environment = CondaEnvironment.from_text(conda)
        reason = check_variables(environment.variables)
        if reason:
            raise ValueError(reason)
        lines = locked.splitlines()
        is_ours = bool(lines) and lines[0] == f"# platform: {machine_of_conda()}"
        archives = [line for line in lines[2:] if "://" in line] if is_ours else []
        pip = [line for line in lines[2:] if "://" not in line] if is_ours else []
        exact = tuple(map(archive_of, archives))
    except (ValueError, TypeError, AttributeError) as error:
        raise failed(f"its conda packages cannot be read: {error}") from error
    return CondaPlan(environment, exact, "\n".join(pip))


class CondaInstaller:
    """Installs packages of conda by steps of a build."""

    def __init__(self, steps: BuildSteps, archives: CondaArchives) -> None:
        self._steps = steps
        self._archives = archives

    async def install(self, site: Site, plan: CondaPlan, build_log: BuildLog) -> CondaInstallation:
        """Install the packages into the folder of the site. Raises StartError.

        The log has the explanation of the solver, word for word.
        """
        if importlib.util.find_spec("rattler") is None:
            raise failed(
                "py-rattler, which installs packages of conda, is missing beside the agent. "
                "Administrators: install it there"
            )
        await asyncio.to_thread(self._archives.prepare)
        archives = plan.locked or _archives_for_this_machine(plan.environment)
        if not archives:
            archives = await self._solve(site, plan.environment, build_log)
        channels = plan.environment.channels
        for archive in archives:
            if not _is_of(archive, channels):
                raise failed(f"{archive.url[:200]} is in none of the channels of the environment")
        python = _python_of(archives)
        await self._fetch(site, channels, archives, build_log)
        request = {
            "scratch": str(site.scratch),
            "prefix": str(site.attempt),
            "archives": [
                {
                    **dict(zip(("name", "version", "build"), archive.parts, strict=True)),
                    "url": archive.url,
                    "path": str(self._archives.path_of(archive)),
                    "sha256": archive.sha256,
                    "subdir": archive.subdir,
                    "channel": archive.channel,
                }
                for archive in archives
            ],
        }
        await self._run(site, "install", request, build_log, network=False)
        await asyncio.to_thread(_check_paths, site.attempt)
        return CondaInstallation(python, archives)

    async def _solve(
        self, site: Site, environment: CondaEnvironment, build_log: BuildLog
    ) -> tuple[LockedArchive, ...]:
        site = await self._with_hosts(site, environment.channels, [])
        request = {
            "scratch": str(site.scratch),
            "channels": [*environment.channels],
            "specs": [*environment.packages],
            "cuda": cuda_version(),
        }
        await self._run(site, "solve", request, build_log)
        try:
            solved = read_text(site.scratch / "solved.txt").splitlines()
            return tuple(map(archive_of, solved))
        except ValueError as error:
            raise failed(f"a channel names a package that cannot be used: {error}") from error

    async def _fetch(
        self,
        site: Site,
        channels: Iterable[str],
        archives: Sequence[LockedArchive],
        build_log: BuildLog,
    ) -> None:
        """Download the archives that this node has not, and store them by their digests."""
        missing = await asyncio.to_thread(self._archives.missing, archives)
        if present := len(archives) - len(missing):
            build_log.write(f"{present} of {len(archives)} packages are on this node already.\n")
        if not missing:
            return
        site = await self._with_hosts(site, channels, [archive.url for archive in missing])
        folder = site.scratch / "archives"
        request = {
            "scratch": str(site.scratch),
            "folder": str(folder),
            "urls": {archive.sha256: archive.url for archive in missing},
        }
        await self._run(site, "fetch", request, build_log)
        for archive in missing:
            try:
                await asyncio.to_thread(self._archives.add, archive, folder / archive.sha256)
            except WrongDigest as error:
                build_log.write(f"{archive.url}: hash mismatch.\n")
                raise failed(
                    f"hash mismatch: {archive.file_name} has the sha256 {error}, and "
                    f"{archive.sha256} was expected"
                ) from error
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _with_hosts(self, site: Site, channels: Iterable[str], urls: Iterable[str]) -> Site:
        hosts = await asyncio.to_thread(channel_hosts, channels, urls, build_variables())
        return site.with_hosts(hosts)

    async def _run(
        self,
        site: Site,
        verb: str,
        request: Mapping[str, object],
        build_log: BuildLog,
        *,
        network: bool = True,
    ) -> None:
        file = site.scratch / f"{verb}.json"
        file.write_text(json.dumps(request), "utf-8")
        command = [sys.executable, "-I", "-c", _SCRIPT.read_text("utf-8"), str(file)]
        build_log.write(f"Packages of conda: {verb}.\n")
        step = site.step(command, site.attempt, network=network)
        readable = (*step.readable, str(self._archives.folder))
        await self._steps.run(replace(step, readable=readable), build_log)


def _archives_for_this_machine(environment: CondaEnvironment) -> tuple[LockedArchive, ...]:
    if not environment.archives:
        return ()
    name = machine_of_conda().partition(" ")[0]
    if name not in environment.archives:
        raise failed(
            f"its packages are locked for {', '.join(environment.archives)}, and this node is "
            f"{name}"
        )
    return environment.archives[name]


def _is_of(archive: LockedArchive, channels: Iterable[str]) -> bool:
    return any(archive.url.startswith(f"{channel}/") for channel in channels)


def _python_of(archives: Iterable[LockedArchive]) -> str:
    version = next((item.parts[1] for item in archives if item.parts[0] == "python"), None)
    if version is None:
        raise failed("it has no Python; add one to dependencies, such as python=3.12")
    match = re.match(r"3\.(\d+)", version)
    if match is None or int(match[1]) < _OLDEST:
        raise failed(f"it has Python {version[:20]}, and jobs need 3.{_OLDEST} or later")
    return match[0]


def _check_paths(prefix: Path) -> None:
    """Raise StartError for a package that names files outside of the environment.

    The step could not write there. Its installer alone would have.
    """
    for file in (prefix / "conda-meta").glob("*.json"):
        with suppress(ValueError, AttributeError):
            files = json.loads(file.read_bytes()[:_FILES_OF_META]).get("files", ())
            for path in map(str, files):
                if path.startswith("/") or ".." in path.split("/"):
                    raise failed(
                        f"the package {file.stem[:100]} has a file outside of the environment, "
                        f"{path[:100]!r}"
                    )


def failed(why: str) -> StartError:
    """Return the error of a build, with the reason as a part of a sentence."""
    return StartError(f"The environment could not be built: {why}.", ReasonCode.ENVIRONMENT_FAILED)
