"""Install requirements into an empty environment: wheels for everybody, sources for one project.

Wheels are locked by hash and installed without running anything of a project, so their cache is
shared. Whatever has to be built runs code that a project chose: with caches of its own, which go
with the build.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from slipway.schemas.workloads import ReasonCode
from workers.node_agent.backends.base import BuildLog
from workers.node_agent.build_steps import BuildStep, BuildSteps, StepFailed
from workers.node_agent.errors import StartError
from workers.node_agent.index_hosts import HostPort
from workers.node_agent.interpreters import Interpreter, places_of_this_interpreter
from workers.node_agent.pip_settings import list_pip_settings
from workers.node_agent.requirement_hashes import required_hashes, with_required_hashes
from workers.node_agent.uv_install import (
    RequiresPip,
    arguments_of_uv,
    local_paths,
    settings_of_pip,
    uv_of,
    uv_pip,
)

First = TypeVar("First")
Second = TypeVar("Second")
_PINNED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!_-]+)(?:\+[A-Za-z0-9.]+)?")
# With an extra or a marker, but no `==1.*`.
_EXACT = re.compile(r"[A-Za-z0-9][\w.-]*\s*(\[[\w\s,.-]*\])?\s*==\s*[\w.!+-]+\s*(;.*)?")
LOCKED_CHARACTERS: Final = 262_144
_FILE_BYTES: Final = 16 << 20


class NeedsSource(Exception):
    """Not everything can be had as a wheel from an index.

    With `wheels`, everything can, but some of it in another version than its newest: exact versions
    of wheels alone.
    """

    def __init__(self, wheels: str = "") -> None:
        super().__init__()
        self.wheels = wheels


class WheelsSuffice(Exception):
    """With packages built from source, the same versions would be installed as without."""


@dataclass(frozen=True)
class Site:
    """One attempt to build an environment: its folder, scratch space and access rights.

    `project` is the project that the result is for. Without it the result is for all projects.
    """

    attempt: Path
    scratch: Path
    base: Interpreter
    project: str | None
    pip: Mapping[str, str] = field(default_factory=dict)
    only_for_pip: str = ""
    pip_arguments: tuple[str, ...] = ()
    hosts: tuple[HostPort, ...] = ()

    @property
    def python(self) -> Path:
        """The interpreter of the environment. Only tasks and builds of its project run it."""
        return self.attempt / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Folder of installed packages."""
        return self.attempt / "lib" / f"python{self.base.version}" / "site-packages"

    def with_hosts(self, hosts: tuple[HostPort, ...]) -> "Site":
        """Return it with other hosts that its steps may reach."""
        return replace(self, hosts=hosts)

    @property
    def lock(self) -> Path:
        """Exact versions with hashes, once they are resolved."""
        return self.scratch / "locked.txt"

    @property
    def requirements_file(self) -> Path:
        """The requirements."""
        return self.scratch / "requirements.txt"

    def step(self, command: list[str], *writable: Path, network: bool = False) -> BuildStep:
        """A step of this attempt."""
        return BuildStep(
            command,
            self.scratch,
            writable,
            (
                str(self.attempt),
                *self.base.places,
                *places_of_this_interpreter(),
                *local_paths(self.pip),
            ),
            self.project,
            network=network,
            hosts=self.hosts if network else (),
        )


class Installer:
    """Fills environments with packages. `cache` takes wheels alone, verified ones."""

    def __init__(self, steps: BuildSteps, cache: Path) -> None:
        self._steps = steps
        self._cache = cache

    def pip_settings(self) -> tuple[dict[str, str], str]:
        """Return pip's settings on this node, and why only pip can apply them, if so.

        Raises StartError.
        """
        try:
            settings = settings_of_pip(list_pip_settings())
        except RequiresPip as error:
            return {}, str(error)
        try:
            arguments_of_uv(settings)
        except RequiresPip as error:
            return settings, str(error)
        return settings, "" if uv_of(sys.executable) else "it is not installed beside the agent"

    async def resolve_wheels(self, site: Site, build_log: BuildLog) -> str:
        """Lock wheels by their index's digests, and return the versions.

        Returns "" where pip installs, which resolves on its own. Raises NeedsSource, and
        StartError.
        """
        if site.only_for_pip:
            return ""
        lock = site.lock
        self._cache.mkdir(mode=0o700, exist_ok=True)
        resolve = [
            *self._uv("compile", str(site.base.executable), self._cache),
            *("--only-binary", ":all:", "--generate-hashes", "--no-header", "--no-annotate"),
            *(*arguments_of_uv(site.pip), "-q", str(site.requirements_file), "-o", str(lock)),
        ]
        try:
            await self._steps.run(site.step(resolve, self._cache, network=True), build_log)
        except StepFailed as error:
            raise NeedsSource from error
        # uv resolves without regard to the hashes that requirements have.
        required = required_hashes(site.requirements_file.read_text("utf-8"))
        restricted = with_required_hashes(read_text(lock), required)
        if restricted is None:
            raise NeedsSource
        lock.write_text(restricted, "utf-8")
        return locked_requirements(restricted)

    async def install_wheels(
        self, site: Site, locked: str, build_log: BuildLog, *, in_any_version: bool
    ) -> str:
        """Install what `resolve_wheels` locked, and return the versions.

        Runs no code of any package. Raises NeedsSource, and StartError. A resolver without sources
        takes an old version of a package, if the newest depends on one without a wheel. Unless
        `in_any_version`, this raises NeedsSource, too.
        """
        if site.only_for_pip:
            build_log.write(f"Installing with pip, which is slower than uv: {site.only_for_pip}.\n")
            return await self._wheels_by_pip(site, build_log)
        install = [
            *self._uv("install", str(site.python), self._cache),
            *("--no-build", "--require-hashes", "--no-deps"),
            *(*arguments_of_uv(site.pip, locked=True), "-r", str(site.lock)),
        ]
        step = site.step(install, self._cache, site.attempt, network=True)
        if in_any_version or _are_exact(site.requirements_file.read_text("utf-8")):
            await self._steps.run(step, build_log)
        else:
            await together(
                self._check_versions(site, locked, build_log), self._steps.run(step, build_log)
            )
        return locked

    async def _check_versions(self, site: Site, locked: str, build_log: BuildLog) -> None:
        """Raise NeedsSource if a required package has a newer wheel than the resolved one.

        What it depends on decides then: on other requirements, or on a package without a wheel.
        """
        newest = site.scratch / "newest.txt"
        resolve = [
            *self._uv("compile", str(site.base.executable), self._cache),
            *("--only-binary", ":all:", "--no-deps", "--no-header", "--no-annotate"),
            *(*arguments_of_uv(site.pip), "-q", str(site.requirements_file), "-o", str(newest)),
        ]
        try:
            await self._steps.run(site.step(resolve, self._cache, network=True), build_log)
        except StepFailed:
            return
        others = set(locked_requirements(read_text(newest)).splitlines()) - set(locked.splitlines())
        if others:
            build_log.write(
                f"Wheels alone would need another version than {', '.join(sorted(others))}; "
                "looking for the cause.\n"
            )
            raise NeedsSource(locked)

    async def install_into(
        self, site: Site, requirements: str, folder: Path, build_log: BuildLog
    ) -> None:
        """Install wheels for the site's Python into a folder that is no environment.

        Raises StartError.
        """
        if site.only_for_pip:
            raise StartError(site.only_for_pip, ReasonCode.ENVIRONMENT_FAILED)
        file = site.scratch / "folder.txt"
        file.write_text(requirements, "utf-8")
        self._cache.mkdir(mode=0o700, exist_ok=True)
        install = [
            *self._uv("install", str(site.base.executable), self._cache),
            *("--target", str(folder), "--only-binary", ":all:", "--link-mode", "copy"),
            *("--python-version", site.base.version),
            *(*arguments_of_uv(site.pip), "-q", "-r", str(file)),
        ]
        await self._steps.run(site.step(install, self._cache, folder, network=True), build_log)

    async def install_beside(self, site: Site, build_log: BuildLog) -> str:
        """Install requirements beside what the environment has. Raises StartError.

        Returns the exact versions of what was added, or an empty text if something was built.
        """
        if site.only_for_pip:
            build_log.write(f"Installing with pip, which is slower than uv: {site.only_for_pip}.\n")
            await self._by_pip(site, build_log)
            return ""
        cache, python = site.scratch / "uv-cache", str(site.python)
        listing = self._uv("freeze", python, cache)
        before = await self._steps.answer(site.step(listing, site.attempt))
        install = [
            *self._uv("install", python, cache),
            *("--link-mode", "copy", *arguments_of_uv(site.pip), "-r", str(site.requirements_file)),
        ]
        wheels = [*install, "--only-binary", ":all:"]
        try:
            await self._steps.run(site.step(wheels, site.attempt, network=True), build_log)
        except StepFailed:
            build_log.write("Not all of this is wheels; building the rest.\n")
            await self._steps.run(site.step(install, site.attempt, network=True), build_log)
            return ""
        after = await self._steps.answer(site.step(listing, site.attempt))
        added = set(after.splitlines()) - set(before.splitlines())
        return locked_requirements("\n".join(sorted(added)))

    async def compile_all(self, site: Site) -> None:
        """Compile the modules by the environment's own interpreter. Raises StepFailed."""
        command = [str(site.python), "-I", "-m", "compileall", "-q", "-j", "2"]
        await self._steps.answer(site.step([*command, str(site.site_packages)], site.attempt))

    async def _wheels_by_pip(self, site: Site, build_log: BuildLog) -> str:
        report = site.scratch / "report.json"
        only = ("--only-binary", ":all:", "--no-cache-dir", "--report", str(report))
        try:
            await self._by_pip(site, build_log, *only)
        except StepFailed as error:
            raise NeedsSource from error
        return locked_requirements(_versions_of_report(read_text(report)))

    async def install_from_source(self, site: Site, build_log: BuildLog, wheels: str = "") -> None:
        """Install whatever is required, building what has no wheel. Raises StartError.

        By uv if it can. pip has the last word: it says what is wrong in words people know. Raises
        WheelsSuffice if the versions are those of `wheels`.
        """
        if not site.only_for_pip:
            try:
                await self._source_by_uv(site, build_log, wheels)
            except StepFailed:
                build_log.write("uv could not install this; trying pip.\n")
            else:
                return
        await self._by_pip(site, build_log)

    async def _source_by_uv(self, site: Site, build_log: BuildLog, wheels: str) -> None:
        cache, lock = site.scratch / "uv-cache", site.scratch / "resolved.txt"
        if required_hashes(site.requirements_file.read_text("utf-8")):
            # Only an installation compares the hashes of requirements, and before it builds.
            install = [
                *(*self._uv("install", str(site.python), cache), "--link-mode", "copy"),
                *(*arguments_of_uv(site.pip), "-r", str(site.requirements_file)),
            ]
            await self._steps.run(site.step(install, site.attempt, network=True), build_log)
            return
        resolve = [
            *self._uv("compile", str(site.python), cache),
            *("--generate-hashes", "--emit-build-options", "--no-header", "--no-annotate"),
            *(*arguments_of_uv(site.pip), "-q", str(site.requirements_file), "-o", str(lock)),
        ]
        # The build may write to the environment, because its interpreter runs the build.
        await self._steps.run(site.step(resolve, site.attempt, network=True), build_log)
        if wheels and locked_requirements(read_text(lock)) == wheels:
            raise WheelsSuffice
        # Hashes are checked if there are any. A commit of a repository has none.
        install = [
            *self._uv("install", str(site.python), cache),
            *("--link-mode", "copy", "--no-deps"),
            *(*arguments_of_uv(site.pip, locked=True), "-r", str(lock)),
        ]
        await self._steps.run(site.step(install, site.attempt, network=True), build_log)

    async def _by_pip(self, site: Site, build_log: BuildLog, *more: str) -> None:
        # Our pip with the environment's interpreter: the environment itself needs no pip.
        install = [
            *(sys.executable, "-I", "-m", "pip", "--python", str(site.python), "install"),
            *("--no-input", "--disable-pip-version-check", "--no-warn-script-location"),
            *("--progress-bar", "off", "--root-user-action", "ignore", "--no-compile"),
            *(*site.pip_arguments, *more, "-r", str(site.requirements_file)),
        ]
        await self._steps.run(site.step(install, site.attempt, network=True), build_log)

    def _uv(self, command: str, python: str, cache: Path) -> list[str]:
        uv = uv_of(sys.executable)
        if uv is None:
            raise StartError(
                "The environment could not be built: uv is missing from the folder of the "
                "agent's interpreter. Restart the agent.",
                ReasonCode.ENVIRONMENT_FAILED,
            )
        return uv_pip(uv, command, python, cache)


async def together(
    first: Coroutine[Any, Any, First], second: Coroutine[Any, Any, Second]
) -> tuple[First, Second]:
    """Run two coroutines at a time. The first that fails cancels the other one, and is raised."""
    tasks = (asyncio.create_task(first), asyncio.create_task(second))
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _are_exact(requirements: str) -> bool:
    """Return whether every requirement allows one version, so that none is newer."""
    lines = (line.strip() for line in requirements.splitlines())
    return all(_EXACT.fullmatch(line) for line in lines if line and not line.startswith("#"))


def read_text(path: Path) -> str:
    """Read a file that a step wrote: no link, no device, not without bound."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            return file.read(_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def locked_requirements(resolved: str) -> str:
    """Return the resolved versions as portable requirements, or "" if not all are.

    The local part of a version (`+cpu`) is removed: it names the build for this machine.
    """
    lines: list[str] = []
    for line in resolved.splitlines():
        text = line.strip().removesuffix("\\").strip()
        pinned = _PINNED.fullmatch(text)
        if pinned is not None:
            lines.append(f"{pinned[1]}=={pinned[2]}")
        elif " @ " in text or text.startswith("-e "):
            return ""
    locked = "\n".join(lines)
    return locked if len(locked) <= LOCKED_CHARACTERS else ""


def _versions_of_report(text: str) -> str:
    try:
        installed = [entry["metadata"] for entry in json.loads(text)["install"]]
        return "\n".join(f"{entry['name']}=={entry['version']}" for entry in installed)
    except (ValueError, KeyError, TypeError):
        return ""
