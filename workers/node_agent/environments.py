"""Virtual environments of tasks: built once, checked before use, published whole.

One made of wheels alone is shared by all projects that require the same. One for which something
had to be built belongs to the project for which it was built, and so do the files it was made from.
"""

import asyncio
import hashlib
import logging
import os
import re
import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from slipway.schemas.agent import EnvironmentSpec
from slipway.schemas.workloads import ReasonCode
from workers.launcher.processes import boot_id, uptime_s
from workers.node_agent.backends.base import BuildLog, PreparedEnvironment
from workers.node_agent.build_disk import BuildDisk
from workers.node_agent.build_plan import BuildPlan
from workers.node_agent.build_steps import BuildSteps, StepFailed, build_variables
from workers.node_agent.build_verification import Skeleton, break_hard_links, seal, skeleton_of
from workers.node_agent.bytecode import first_compile_commands, remaining_compile_command
from workers.node_agent.conda_archives import CondaArchives
from workers.node_agent.conda_packages import CondaInstaller, CondaPlan, plan_of
from workers.node_agent.disk_limits import DiskLimits
from workers.node_agent.environment_records import EnvironmentRecord
from workers.node_agent.errors import StartError
from workers.node_agent.file_lock import hold_lock
from workers.node_agent.folders import NodeFolders, checked_digest, checked_name
from workers.node_agent.index_hosts import HostPort, allowed_hosts, direct_addresses
from workers.node_agent.installation import (
    Installer,
    NeedsSource,
    Site,
    WheelsSuffice,
    together,
)
from workers.node_agent.interpreters import Interpreter, describe_interpreter, find_interpreters
from workers.node_agent.isolation import Isolation
from workers.node_agent.manifests import ContentChanged, sealed_status
from workers.node_agent.package_archives import FetchArchive, no_archives
from workers.node_agent.requirement_lines import NodeRequirements, checked_requirements
from workers.node_agent.sdk_packages import SdkPackages
from workers.node_agent.settings import AgentSettings

log = logging.getLogger(__name__)
_PYTHON = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
# The agent verifies the default environment every minute, so no task waits for that.
_CHECKED_FOR_S: Final = 90.0


def default_environment(requirements: Path) -> EnvironmentSpec:
    """The environment of tasks that name none, called by what it consists of. Raises StartError."""
    try:
        text = requirements.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise _failed(f"{requirements}, the node's own requirements, is unreadable") from error
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    named = f"slipway-environment-1\n{python}\n{checked_requirements(text).text}"
    digest = hashlib.sha256(named.encode()).hexdigest()
    return EnvironmentSpec(digest=digest, requirements=text, python=python)


class VirtualEnvironments:
    """The environments on this node's disk."""

    def __init__(self, settings: AgentSettings, folders: NodeFolders, isolation: Isolation) -> None:
        self._settings = settings
        self._folders = folders
        disk = DiskLimits.of(settings, folders.root)
        self._steps = BuildSteps(settings, folders.code, isolation, disk.task_bytes)
        self._installer = Installer(self._steps, folders.unpacked)
        self._conda = CondaInstaller(self._steps, CondaArchives(folders.conda_archives))
        self._compiling: dict[Path, asyncio.Task[None]] = {}
        self._recording: dict[Path, asyncio.Task[EnvironmentRecord]] = {}
        self._checking: dict[Path, asyncio.Lock] = {}
        # By attempt, the time of the last comparison.
        self._checked: dict[Path, float] = {}

    def builds(self) -> set[BuildDisk]:
        """The steps of builds that run now."""
        return self._steps.running

    async def ensure(
        self,
        spec: EnvironmentSpec,
        build_log: BuildLog,
        project: str | None = None,
        fetch: FetchArchive = no_archives,
    ) -> PreparedEnvironment:
        """The environment with its interpreter, built now if it is not there. Raises StartError.

        Without a project it consists of wheels alone, like all that projects share. `fetch` gets
        the archives that the requirements name by their digests.
        """
        digest = checked_digest(spec.digest, "environment")
        shared = self._folders.environments / digest
        own = None
        if project is not None:
            checked_name(project, "persistent key")
            own = self._folders.project_environments / project / digest
        if spec.conda:
            return await self._ensure_conda(spec, build_log, own, project, fetch)
        for home in filter(None, (shared, own)):
            published = await self._ready(home)
            if published is not None:
                return published
        requirements = checked_requirements(spec.requirements, spec.secrets)
        build = BuildPlan(shared, spec.python, requirements, None, build_log, fetch=fetch)
        if own is None and (requirements.accounts or requirements.archives):
            raise _failed(
                "packages of an index with an account, and archives of the code, belong to one "
                "project, and this node builds for all projects alone"
            )
        if own is None:
            try:
                return await self._ensure_in(build)
            except NeedsSource as error:
                raise error.__cause__ or _failed("something has no wheel") from error
        # Files of the code, or from an index with an account, are the project's alone, too.
        is_of_project = (
            direct_addresses(requirements.text)
            or requirements.from_source
            or requirements.accounts
            or requirements.archives
        )
        wheels = ""
        if not is_of_project:
            try:
                return await self._ensure_in(replace(build, in_any_version=False))
            except NeedsSource as error:
                wheels = error.wheels
        if not wheels:
            build_log.write(
                "Not all requirements are wheels from an index, so this environment is built for "
                "this project only.\n"
            )
        try:
            return await self._ensure_in(replace(build, home=own, project=project, wheels=wheels))
        except WheelsSuffice:
            return await self._ensure_in(build)

    async def _ensure_conda(
        self,
        spec: EnvironmentSpec,
        build_log: BuildLog,
        own: Path | None,
        project: str | None,
        fetch: FetchArchive,
    ) -> PreparedEnvironment:
        if own is None:
            raise _failed("packages of conda belong to one project, and this node builds for all")
        plan = plan_of(spec.conda, spec.conda_locked)
        pip = plan.pip if " --hash=" not in spec.requirements else ""
        requirements = checked_requirements(pip or spec.requirements, spec.secrets)
        build = BuildPlan(own, "", requirements, project, build_log, conda=plan, fetch=fetch)
        return await self._ready(own) or await self._ensure_in(build)

    async def _ensure_in(self, build: BuildPlan) -> PreparedEnvironment:
        """Build unless another task has. Raises NeedsSource, and StartError."""
        build.home.mkdir(mode=0o711, parents=True, exist_ok=True)
        for folder in (build.home, build.home.parent):
            # Without mount namespaces, users of projects traverse these to what they may read.
            folder.chmod(0o711)
        async with hold_lock(build.home / "lock"):
            ready = await self._ready(build.home)
            if ready is None:
                await self._build(build)
                ready = await self._ready(build.home)
        if ready is None:
            raise _failed("it disappeared right after it was ready")
        return ready

    async def _ready(self, home: Path) -> PreparedEnvironment | None:
        """Return the published environment after verification.

        Raises StartError if it was changed. If that was before its content was recorded, it is
        quarantined as well, and None has it built again.
        """
        published = EnvironmentRecord.read(home)
        if published is None:
            return None
        async with self._checking.setdefault(home, asyncio.Lock()):
            if not self._is_being_compiled(published):
                try:
                    published = await self._check(published)
                except ContentChanged as error:
                    refusal = await self._quarantine(published, error)
                    if published.digest:
                        raise refusal from error
                    return None
        with suppress(FileNotFoundError):
            os.utime(home / "ready.json")  # the least recently used is removed first
        self._compile_behind(published)
        return published.prepared()

    # Verify

    async def _check(self, published: EnvironmentRecord) -> EnvironmentRecord:
        """Compare it with its record, at most every 90 s. Raises ContentChanged."""
        attempt, started_at_s = published.attempt, uptime_s()
        if attempt in self._checked and started_at_s - self._checked[attempt] < _CHECKED_FOR_S:
            return published
        checked = await asyncio.to_thread(published.checked)
        if checked != published:
            checked.write()
        log.debug("%s compared in %.1f s", attempt.parent.name[:12], uptime_s() - started_at_s)
        self._checked[attempt] = uptime_s()
        return checked

    async def _quarantine(self, published: EnvironmentRecord, error: ContentChanged) -> StartError:
        """Quarantine an environment that differs from its build. The next task rebuilds it."""
        home = published.attempt.parent
        for name in ("ready.json", "compiled"):
            (home / name).unlink(missing_ok=True)
        place = home / f"quarantine-{published.attempt.name}"
        outdated = [*home.glob("quarantine-*")]
        with suppress(OSError):
            published.attempt.rename(place)
            # The cache may share its files.
            outdated.append(self._folders.unpacked.rename(home / "quarantine-cache"))
        for folder in outdated:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        self._checked.pop(published.attempt, None)
        log.error("%s has changed since it was built (%s); it was moved to %s", home, error, place)
        path = error.path.encode("utf-8", "replace").decode()[:200]
        return StartError(
            f"The environment on this node is rejected: {path!r} has changed since it was built. "
            "Submit again: it will be rebuilt. Administrators: the changed environment is in "
            f"{place.name} in the node's environments folder; find out the cause.",
            ReasonCode.ENVIRONMENT_FAILED,
        )

    # Build

    async def _build(self, build: BuildPlan) -> None:
        if build.conda is not None:
            await self._build_of_conda(build, build.conda)
            return
        base = await self._interpreter(build.python)
        attempt, scratch = await asyncio.to_thread(build.create_attempt)
        site = Site(attempt, scratch, base, build.project)
        try:
            build = await build.with_archives(scratch)
            site = await self._with_indexes(site, build.requirements)
            locked = ""
            if build.project is not None or not build.requirements.text.strip():
                skeleton = await self._create_skeleton(site, build.log)
            else:
                skeleton, locked = await together(
                    self._create_skeleton(site, build.log),
                    self._installer.resolve_wheels(site, build.log),
                )
                # Links to the same files change their status.
                await self._record_all()
                locked = await self._installer.install_wheels(
                    site, locked, build.log, in_any_version=build.in_any_version
                )
            if build.project is not None:
                await self._installer.install_from_source(site, build.log, build.wheels)
            if not base.is_of_agent:
                await self._add_sdk_packages(site, build.log)
            fingerprint, size_bytes = await asyncio.to_thread(_finish, site, skeleton)
        except (StartError, NeedsSource, WheelsSuffice):
            await asyncio.to_thread(shutil.rmtree, attempt, ignore_errors=True)
            raise
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        self._publish(site, fingerprint, size_bytes, locked, build)

    async def _build_of_conda(self, build: BuildPlan, plan: CondaPlan) -> None:
        """Build an environment whose interpreter is a package. Only steps of the project run it."""
        attempt, scratch = await asyncio.to_thread(build.create_attempt)
        own = Interpreter(attempt / "bin" / "python", "", ())
        site, skeleton = Site(attempt, scratch, own, build.project), Skeleton(None, {})
        try:
            installed = await self._conda.install(site, plan, build.log)
            site = replace(site, base=replace(own, version=installed.python))
            pip = ""
            build = await build.with_archives(scratch)
            if build.requirements.text.strip():
                site = await self._with_indexes(site, build.requirements)
                pip = await self._installer.install_beside(site, build.log)
            with suppress(StepFailed):
                await self._installer.compile_all(site)
            if not site.base.is_of_agent:
                outside = replace(site.base, executable=Path(sys.executable))
                await self._add_sdk_packages(replace(site, base=outside), build.log)
            fingerprint, size_bytes = await asyncio.to_thread(_finish, site, skeleton)
        except StartError:
            await asyncio.to_thread(shutil.rmtree, attempt, ignore_errors=True)
            raise
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
        locked = installed.locked("" if build.requirements.accounts else pip)
        variables = {"CONDA_PREFIX": str(attempt), **plan.environment.variables}
        published = self._publish(site, fingerprint, size_bytes, locked, build, variables)
        # Its modules are compiled, so nothing runs its interpreter behind the first task.
        recorded = await asyncio.to_thread(published.recorded)
        await asyncio.to_thread(recorded.compiled)

    def _publish(
        self,
        site: Site,
        fingerprint: str,
        size_bytes: int,
        locked: str,
        build: BuildPlan,
        variables: Mapping[str, str] | None = None,
    ) -> EnvironmentRecord:
        build.log.write(f"Ready: {size_bytes >> 20} MiB.\n")
        published = EnvironmentRecord(
            *(site.attempt, "", size_bytes, locked, str(site.base.executable), site.base.places),
            *(fingerprint, boot_id(), variables or {}),
        )
        self._checked[site.attempt] = uptime_s()
        published.write()
        return published

    async def _create_skeleton(self, site: Site, build_log: BuildLog) -> Skeleton:
        make = [str(site.base.executable), "-I", "-m", "venv", "--without-pip", str(site.attempt)]
        await self._steps.run(site.step(make, site.attempt), build_log)
        return skeleton_of(site.attempt)

    async def _with_indexes(self, site: Site, requirements: NodeRequirements) -> Site:
        """The site with the way to the package indexes. Raises StartError."""
        if not requirements.text.strip():
            return site
        pip, only_for_pip = self._installer.pip_settings()
        pip = requirements.with_indexes(pip)
        hosts: tuple[HostPort, ...] = ()
        # Steps that run no code of a project are not bound to hosts.
        if site.project is not None or direct_addresses(requirements.text):
            hosts = await asyncio.to_thread(
                allowed_hosts, pip, requirements.text, build_variables(), requirements.accounts
            )
        return replace(
            site,
            pip=pip,
            only_for_pip=only_for_pip or requirements.only_for_pip,
            pip_arguments=tuple(requirements.arguments_of_pip()),
            hosts=hosts,
        )

    async def _compile_first(self, site: Site) -> None:
        """Compile what tasks import first. What cannot be compiled is the affair of tasks."""

        async def compile_kind(command: list[str]) -> None:
            with suppress(StartError):
                step = site.step(command, site.attempt)
                await self._steps.answer(replace(step, behind=True))

        async with asyncio.TaskGroup() as group:
            for command in first_compile_commands(site.base.executable, site.site_packages):
                group.create_task(compile_kind(command))

    async def _add_sdk_packages(self, site: Site, build_log: BuildLog) -> None:
        """Install what the SDK imports for another Python than the agent's, once on this node.

        For all projects, so from the node's own indexes, in a folder that no build has written to.
        """
        draft = SdkPackages.for_python(self._folders.sdk, site.base.version)
        if draft is None:
            return
        scratch = site.attempt.with_name(f"{site.attempt.name}.sdk")
        scratch.mkdir(mode=0o700)
        try:
            build_log.write(f"Installing the SDK's packages for Python {site.base.version}.\n")
            for_all = await self._with_indexes(
                Site(site.attempt, scratch, site.base, None),
                checked_requirements(draft.requirements),
            )
            await self._installer.install_into(for_all, draft.requirements, draft.folder, build_log)
            await asyncio.to_thread(draft.publish)
        except StartError:
            build_log.write(
                f"They could not be installed, so `import slipway` fails in Python "
                f"{site.base.version} unless the requirements name {draft.names}.\n"
            )
        finally:
            await asyncio.to_thread(draft.discard)
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    def _is_being_compiled(self, published: EnvironmentRecord) -> bool:
        task = self._compiling.get(published.attempt)
        return task is not None and not task.done()

    def _compile_behind(self, published: EnvironmentRecord) -> None:
        """See to it that contents are recorded and modules compiled, while nobody waits."""
        # By folder, because a rebuilt environment has another one and is compiled again.
        attempt = published.attempt
        if attempt not in self._compiling and not published.is_compiled:
            self._compiling[attempt] = asyncio.create_task(self._compile(published))

    def _record_behind(self, published: EnvironmentRecord) -> "asyncio.Task[EnvironmentRecord]":
        attempt = published.attempt
        if attempt not in self._recording:
            self._recording[attempt] = asyncio.create_task(asyncio.to_thread(published.recorded))
        return self._recording[attempt]

    async def _record_all(self) -> None:
        """Record the contents of all environments whose contents are not recorded yet."""
        homes = (*self._folders.environments.iterdir(), *self._folders.project_homes())
        published = [record for record in map(EnvironmentRecord.read, homes) if record is not None]
        recording = [self._record_behind(record) for record in published if not record.digest]
        # One that was changed is refused by whoever requests it.
        await asyncio.gather(*recording, return_exceptions=True)

    async def _compile(self, published: EnvironmentRecord) -> None:
        """Record contents and compile all modules, resuming an interrupted compilation."""
        attempt, home = published.attempt, published.attempt.parent
        scratch = home / "compile.tmp"
        (site_packages,) = (attempt / "lib").glob("python3.*/site-packages")
        version = site_packages.parent.name.removeprefix("python")
        base = Interpreter(Path(published.base), version, published.places)
        site = Site(attempt, scratch, base, project=None)
        try:
            async with hold_lock(home / "compile.lock"):
                if not published.digest:
                    published = await self._record_behind(published)
                scratch.mkdir(mode=0o700, exist_ok=True)
                await self._compile_first(site)
                step = site.step(remaining_compile_command(base.executable, attempt), attempt)
                await self._steps.answer(replace(step, behind=True))
                await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)
                await asyncio.to_thread(published.compiled)
                self._checked[attempt] = uptime_s()
        except ContentChanged as error:
            await self._quarantine(published, error)
        except (StartError, OSError, ValueError) as error:
            log.warning("the rest of %s could not be compiled: %s", home.name[:12], error)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, ignore_errors=True)

    async def _interpreter(self, version: str) -> Interpreter:
        match = _PYTHON.fullmatch(version)
        if match is None:
            raise _failed(f"{version[:50]!r} is not a version of Python such as 3.11")
        name = f"{match[1]}.{match[2]}"
        own = str(self._settings.python or sys.executable)
        described = await describe_interpreter(own)
        if described is not None and described.version == name:
            return described
        interpreters = await find_interpreters(own)
        if name in interpreters:
            return interpreters[name]
        raise _failed(
            f"this node has no Python {name} (it has {', '.join(sorted(interpreters)) or 'none'}). "
            f"Administrators: install it there, such as with `uv python install {name}`"
        )


def _finish(site: Site, skeleton: Skeleton) -> tuple[str, int]:
    """Seal a build, and return its fingerprint and its size in bytes. Raises StartError."""
    seal(site.attempt, skeleton)
    if site.project is not None:
        break_hard_links(site.attempt)
    return sealed_status(site.attempt)


def _failed(why: str) -> StartError:
    return StartError(f"The environment could not be built: {why}.", ReasonCode.ENVIRONMENT_FAILED)
