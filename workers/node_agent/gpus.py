"""The graphics cards of this machine, by NVIDIA's management library where it is installed."""

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from slipway.schemas.agent import GpuFacts

try:
    import pynvml
except ImportError:  # the package nvidia-ml-py is optional: most machines have no such GPU
    pynvml = None

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GpuUse:
    """Use of some cards together: mean percent of their time, sum of their memory."""

    percent: float
    memory_bytes: int


class Gpus:
    """Reads the GPUs. There are none on a machine without cards or without the library."""

    def __init__(self, of_container: Iterable[tuple[str, GpuFacts]] | None = None) -> None:
        """Read the cards of the machine, or take those that another container sees, by name."""
        self._handles: dict[str, Any] = {}
        self.facts: list[GpuFacts] = []
        if of_container is not None:
            for uuid, card in of_container:
                self._handles[uuid] = None
                self.facts.append(card)
            return
        if pynvml is None:
            return
        try:
            pynvml.nvmlInit()
            for index in range(pynvml.nvmlDeviceGetCount()):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
                model = _text(pynvml.nvmlDeviceGetName(handle))
                self._handles[_text(pynvml.nvmlDeviceGetUUID(handle))] = handle
                self.facts.append(GpuFacts(index=index, model=model, memory_bytes=memory))
        except pynvml.NVMLError as error:
            log.info("no GPU can be read: %s", error)

    @property
    def uuids(self) -> list[str]:
        """Names of the cards that stay the same over restarts, in the order of their indices."""
        return list(self._handles)

    def use_of(self, uuids: Iterable[str]) -> GpuUse | None:
        """Return the current use of the named cards, or None if there are none."""
        percents: list[float] = []
        memory_bytes = 0
        for uuid in uuids:
            handle = self._handles.get(uuid)
            if handle is None:
                continue
            with contextlib.suppress(pynvml.NVMLError):
                percents.append(float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
                memory_bytes += int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        return GpuUse(sum(percents) / len(percents), memory_bytes) if percents else None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def cuda_version() -> str:
    """Return the version of CUDA that the driver supports, such as `12.8`, or an empty text."""
    if pynvml is None:
        return ""
    try:
        pynvml.nvmlInit()
        try:
            version = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return ""
    return f"{version // 1000}.{version % 1000 // 10}"
