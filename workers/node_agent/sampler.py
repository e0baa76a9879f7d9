"""Sends what tasks use: the shims measure, this adds the cards and hands it on."""

import asyncio
import json
import logging
import os
from typing import Any, Final

import pydantic

from slipway.schemas.agent import Sample, Samples
from workers.launcher.launch import StateFolder
from workers.launcher.usage import SAMPLE_EVERY_S
from workers.node_agent.attempts import Attempt, AttemptTable
from workers.node_agent.gpus import Gpus
from workers.node_agent.portal import Portal
from workers.portal_client.client import PortalError

log = logging.getLogger(__name__)
_BATCH: Final = 1000
_READ_BYTES: Final = 256 * 1024


class Sampler:
    """Sends usage samples. Refused ones are not sent again, because they matter little."""

    def __init__(self, portal: Portal, table: AttemptTable, gpus: Gpus) -> None:
        self._portal = portal
        self._table = table
        self._gpus = gpus

    async def run(self) -> None:
        """Send for ever."""
        while True:
            await asyncio.sleep(SAMPLE_EVERY_S)
            try:
                await self.send()
            except PortalError as error:
                log.info("samples are delayed: %s", error)

    async def send(self) -> None:
        """Send new samples. Raises PortalError, and then the samples remain for the next call."""
        samples: list[Sample] = []
        cursors: list[tuple[Attempt, int]] = []
        for attempt in self._table:
            if attempt.stale or len(samples) >= _BATCH:
                continue
            items, cursor = self._read(attempt)
            samples.extend(items[: _BATCH - len(samples)])
            cursors.append((attempt, cursor))
        if samples:
            await self._portal.samples(Samples(samples=samples))
        for attempt, cursor in cursors:
            attempt.cursors.usage = cursor

    def _read(self, attempt: Attempt) -> tuple[list[Sample], int]:
        cursor = attempt.cursors.usage
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(StateFolder(attempt.folder.state).usage, flags)
        except OSError:
            return [], cursor
        try:
            if os.fstat(descriptor).st_size < cursor:
                cursor = 0  # the file grew too large and was started again
            data = os.pread(descriptor, _READ_BYTES, cursor)
        finally:
            os.close(descriptor)
        whole = data.rfind(b"\n") + 1
        items = [self._sample(attempt, line) for line in data[:whole].splitlines()]
        samples = [sample for sample in items if sample is not None]
        if samples and not attempt.finished:
            samples[-1] = self._with_gpus(attempt, samples[-1])
        return samples, cursor + whole

    @staticmethod
    def _sample(attempt: Attempt, line: bytes) -> Sample | None:
        try:
            fields: dict[str, Any] = json.loads(line)
            return Sample(**{**fields, **attempt.key.model_dump()})
        except (ValueError, TypeError, pydantic.ValidationError):
            return None

    def _with_gpus(self, attempt: Attempt, sample: Sample) -> Sample:
        use = self._gpus.use_of(attempt.record.gpus)
        if use is None:
            return sample
        return sample.model_copy(
            update={"gpu_percent": use.percent, "gpu_memory_bytes": use.memory_bytes}
        )
