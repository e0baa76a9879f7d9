"""Builds of environments, each once at a time, with their log told to the portal as it grows."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from slipway.schemas.agent import EnvironmentReport, EnvironmentSpec
from workers.node_agent.backends.base import Backend
from workers.node_agent.errors import PortalError, PortalRefused, PortalUnreachable, StartError
from workers.node_agent.portal import Portal
from workers.node_agent.retries import Backoff, until_answered

log = logging.getLogger(__name__)
_PIECE_CHARACTERS: Final = 65_536
_EVERY_S: Final = 0.5
_KEEP_CHARACTERS: Final = 8 * 1024 * 1024


class _GrowingLog:
    """Text of a build; `offset` counts the characters that the portal has."""

    def __init__(self) -> None:
        self._text = ""
        self.offset = 0

    def write(self, text: str) -> None:
        """Add text; what grows beyond all measure is cut."""
        if len(self._text) < _KEEP_CHARACTERS:
            self._text += text.replace("\0", "\ufffd")

    def rest(self) -> str:
        """What the portal does not have yet, at most one piece."""
        return self._text[self.offset : self.offset + _PIECE_CHARACTERS]


class EnvironmentBuilds:
    """Makes environments ready for tasks; many that want the same one wait for one build."""

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._specs: dict[tuple[str, str], EnvironmentSpec] = {}
        self._telling: set[asyncio.Task[None]] = set()

    async def ensure(
        self, backend: Backend, digest: str | None, *, on_build: Callable[[], None]
    ) -> str:
        """The runtime of an environment for a back end. Raises StartError."""
        if digest is None:
            return await backend.prepare(None, _GrowingLog())
        key = (backend.name, digest)
        async with self._locks.setdefault(key, asyncio.Lock()):
            spec = self._specs.get(key)
            if spec is not None:
                return await backend.prepare(spec, _GrowingLog())
            on_build()
            runtime, self._specs[key] = await self._build(backend, digest)
            return runtime

    async def _build(self, backend: Backend, digest: str) -> tuple[str, EnvironmentSpec]:
        try:
            spec: EnvironmentSpec = await until_answered(lambda: self._portal.environment(digest))
        except PortalRefused as error:
            raise StartError(f"The portal did not give the environment: {error}.") from error
        build_log = _GrowingLog()
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        telling = asyncio.create_task(self._tell(digest, build_log, outcome))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        try:
            runtime = await backend.prepare(spec, build_log)
        except StartError as error:
            build_log.write(f"\n{error}\n")
            outcome.set_result("failed")
            raise
        except BaseException:
            outcome.cancel()
            raise
        outcome.set_result("ready")
        return runtime, spec

    async def _tell(
        self, digest: str, build_log: _GrowingLog, outcome: "asyncio.Future[str]"
    ) -> None:
        """Send the log while it grows, and the outcome behind its last piece."""
        backoff = Backoff()
        while not outcome.cancelled():
            text = build_log.rest()
            final = outcome.done() and len(text) < _PIECE_CHARACTERS
            state = outcome.result() if final else "building"
            report = EnvironmentReport.model_validate(
                {"state": state, "log_offset": build_log.offset, "log": text}
            )
            try:
                await self._portal.report_environment(digest, report)
            except PortalUnreachable:
                await asyncio.sleep(backoff.pause_s())
                continue
            except PortalError as error:
                log.warning("the portal takes no report of environment %s: %s", digest, error)
                return
            backoff.reset()
            build_log.offset += len(text)
            if final:
                return
            if len(text) < _PIECE_CHARACTERS:
                await asyncio.wait({outcome}, timeout=_EVERY_S)
