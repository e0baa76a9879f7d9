"""Builds of environments, one at a time per environment, with logs streamed to the portal."""

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal

from slipway.schemas.agent import EnvironmentReport, EnvironmentSpec
from workers.launcher.atomic_files import read_json, write_atomically
from workers.node_agent.backends.base import Backend, PreparedEnvironment, TaskCode
from workers.node_agent.errors import StartError
from workers.node_agent.folders import checked_digest, checked_name
from workers.node_agent.package_archives import fetch_archive
from workers.node_agent.portal import Portal
from workers.portal_client.backoff import Backoff, retry_until_answered
from workers.portal_client.client import PortalError, PortalRefused, PortalUnreachable

log = logging.getLogger(__name__)
_PIECE_BYTES: Final = 65_536
_EVERY_S: Final = 0.5
_KEEP_BYTES: Final = 8 * 1024 * 1024


class GrowingLog:
    """The log of a build. `offset` counts the bytes of it that the portal has."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        self._data = bytearray()
        self._on_first = on_first
        self._left_out_bytes = 0
        self.begun = False
        self.offset = 0

    def write(self, text: str) -> None:
        """Add text up to the size limit. The first text marks the start of the build."""
        if not self.begun:
            self.begun = True
            self._on_first()
        data = _encoded(text)
        if self._left_out_bytes or len(self._data) + len(data) > _KEEP_BYTES:
            self._left_out_bytes += len(data)
        else:
            self._data += data

    def finish(self, text: str = "") -> None:
        """Add the size of omitted output, if any, and the last lines, which always fit."""
        if self._left_out_bytes:
            self._data += _encoded(
                f"\n… {self._left_out_bytes:,} more bytes of output are left out: a build log "
                f"has at most {_KEEP_BYTES // 1024**2} MiB.\n"
            )
        if text:
            self.write("")
            self._data += _encoded(text)

    def next_piece(self) -> str:
        """Return the next piece that the portal lacks, of whole characters."""
        piece = self._data[self.offset : self.offset + _PIECE_BYTES]
        return piece.decode("utf-8", "ignore")

    def sent(self, next_offset: int) -> None:
        """Go on from where the portal says."""
        self.offset = min(max(next_offset, 0), len(self._data))

    @property
    def size_bytes(self) -> int:
        """Length of the log in bytes."""
        return len(self._data)

    @property
    def is_sent(self) -> bool:
        """True if the portal has the whole log so far."""
        return self.offset >= self.size_bytes


def _encoded(text: str) -> bytes:
    return text.replace("\0", "\ufffd").encode("utf-8", "replace")


class Build:
    """One build of one environment on this node, from its first line to the portal's knowing."""

    def __init__(
        self, portal: Portal, project: str, digest: str, number: int, build_log: GrowingLog
    ) -> None:
        self._portal = portal
        self._project = project
        self._digest = digest
        self._number = number
        self._log = build_log
        self._ended = asyncio.Event()
        self._state: Literal["building", "ready", "failed"] = "building"
        self._prepared: PreparedEnvironment | None = None

    def end(self, prepared: PreparedEnvironment | None) -> None:
        """It is ready, or it failed."""
        self._state = "failed" if prepared is None else "ready"
        self._prepared = prepared
        self._ended.set()

    async def send_report(self) -> None:
        """Send the log while it grows, and the outcome with its last piece."""
        backoff = Backoff()
        while True:
            report = self._report()
            try:
                answer = await self._portal.report_environment(self._digest, report)
            except PortalUnreachable:
                await asyncio.sleep(backoff.pause_s())
                continue
            except PortalError as error:
                log.warning("the portal rejected a report of %s: %s", self._digest[:12], error)
                return
            backoff.reset()
            self._log.sent(answer)
            if report.state != "building" and self._log.is_sent:
                return
            if self._log.is_sent:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), _EVERY_S)

    def _report(self) -> EnvironmentReport:
        text = self._log.next_piece()
        behind = self._log.offset + len(text.encode())
        final = self._ended.is_set() and behind >= self._log.size_bytes
        prepared = self._prepared if final else None
        return EnvironmentReport(
            project=self._project,
            build=self._number,
            state=self._state if final else "building",
            log_offset=self._log.offset,
            log=text,
            size_bytes=prepared.size_bytes if prepared else None,
            locked=prepared.locked if prepared else "",
            image=prepared.image if prepared else "",
            image_python=prepared.image_python if prepared else "",
        )


class EnvironmentBuilds:
    """Prepares environments for tasks. Concurrent requests for one environment share one build.

    Builds for different projects share nothing: neither locks, nor logs, nor counts. `counts` is
    the folder that records how many builds of each environment there were here.
    """

    def __init__(self, portal: Portal, counts: Path) -> None:
        self._portal = portal
        self._counts = counts
        self._locks: dict[tuple[str, str, str], asyncio.Lock] = {}
        self._specs: dict[tuple[str, str, str], EnvironmentSpec] = {}
        self._report_tasks: set[asyncio.Task[None]] = set()

    async def ensure(
        self,
        backend: Backend,
        digest: str | None,
        *,
        on_build: Callable[[], None],
        project: str | None = None,
        from_source: bool = True,
        code: TaskCode | None = None,
    ) -> PreparedEnvironment:
        """Return an environment for a task of a project on a back end. Raises StartError.

        Without `from_source` it consists of wheels alone, and no code of the project runs. `code`
        is that of the task, for images that are built from it.

        `on_build` is called if it has to be built, also if another caller builds it already. No
        digest stands for the default environment, which belongs to the node and is unknown to the
        portal.
        """
        key = (backend.name, project or "" if digest else "", digest or "")
        lock = self._locks.setdefault(key, asyncio.Lock())
        if lock.locked():
            on_build()
        async with lock:
            if digest is None:
                return await backend.prepare(None, GrowingLog(on_build))
            spec = self._specs.get(key)
            known = spec is not None
            if spec is None:
                spec = await self._spec(digest, project)
            prepared = await self._prepare(
                backend,
                spec,
                on_build,
                project,
                known=known,
                from_source=from_source,
                code=code,
            )
            self._specs[key] = spec
            return prepared

    async def _spec(self, digest: str, project: str | None) -> EnvironmentSpec:
        try:
            spec: EnvironmentSpec = await retry_until_answered(
                lambda: self._portal.environment(digest, project)
            )
        except PortalRefused as error:
            raise StartError(f"The portal did not return the environment: {error}.") from error
        return spec

    async def _prepare(
        self,
        backend: Backend,
        spec: EnvironmentSpec,
        on_build: Callable[[], None],
        project: str | None,
        *,
        known: bool,
        from_source: bool,
        code: TaskCode | None,
    ) -> PreparedEnvironment:
        """Prepare, and report it unless it was ready and the portal knows that (`known`)."""
        build: Build | None = None
        scope = project or ""

        def begin() -> None:
            nonlocal build
            on_build()
            number = self._count(scope, spec.digest) + 1
            build = self._begin(scope, spec.digest, number, build_log)

        build_log = GrowingLog(begin)
        prepared: PreparedEnvironment | None = None
        last = ""
        try:
            scoped_to = project if from_source else None
            fetch = partial(fetch_archive, self._portal, spec.digest, scope)
            prepared = await backend.prepare(spec, build_log, scoped_to, code, fetch)
        except StartError as error:
            last = f"\n{error}\n"
            raise
        except asyncio.CancelledError:
            if build_log.begun:
                last = "\nCancelled: its task is no longer needed.\n"
            raise
        finally:
            build_log.finish(last)
            if build is not None:
                build.end(prepared)
        if build is None and not known:
            number = max(1, self._count(scope, spec.digest))
            self._begin(scope, spec.digest, number, build_log).end(prepared)
        return prepared

    def _begin(self, project: str, digest: str, number: int, build_log: GrowingLog) -> Build:
        path = self._count_file(project, digest)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, json.dumps({"builds": number}))
        build = Build(self._portal, project, digest, number, build_log)
        telling = asyncio.create_task(build.send_report())
        self._report_tasks.add(telling)
        telling.add_done_callback(self._report_tasks.discard)
        return build

    def _count(self, project: str, digest: str) -> int:
        document = read_json(self._count_file(project, digest)) or {}
        count = document.get("builds")
        return count if isinstance(count, int) else 0

    def _count_file(self, project: str, digest: str) -> Path:
        folder = self._counts / checked_name(project, "persistent key") if project else self._counts
        return folder / f"{checked_digest(digest, 'environment')}.json"
