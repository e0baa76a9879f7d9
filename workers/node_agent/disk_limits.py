"""Disk limits of a node: the maximum per task, and the reserve that stays free."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from workers.node_agent.settings import AgentSettings

_GIB: Final = 1024**3


@dataclass(frozen=True)
class DiskLimits:
    """Bytes on the disk of a node: how large it is, the bound of one task, what stays free."""

    capacity_bytes: int
    task_bytes: int
    reserve_bytes: int

    @classmethod
    def of(cls, settings: AgentSettings, folder: Path) -> "DiskLimits":
        """Return the limits of the settings, or else a share of the disk that holds this folder."""
        capacity = shutil.disk_usage(folder).total
        reserve = min(max(_GIB, capacity // 50), capacity // 10)
        return cls(
            capacity,
            settings.task_disk_bytes or capacity // 4,
            reserve if settings.disk_reserve_bytes is None else settings.disk_reserve_bytes,
        )
