"""Records of the images of projects on this node, by tag: what a task needs to know of one."""

import json
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

from workers.launcher.atomic_files import read_json, write_atomically

KEPT_IMAGES: Final = 20
# Images used this recently may be needed by a task that is being prepared.
_SPARE_S: Final = 3600.0
# The platform decides these for every task.
_OWN_VARIABLES: Final = frozenset(
    {"HOME", "TMPDIR", "USER", "LOGNAME", "HOSTNAME", "PWD", "CUDA_VISIBLE_DEVICES"}
)
_OWN_PREFIXES: Final = ("SLIPWAY_", "NVIDIA_VISIBLE_DEVICES")


def environment_of(variables: Iterable[str]) -> dict[str, str]:
    """Return variables `NAME=VALUE` of an image without those that the platform decides."""
    pairs = (line.partition("=") for line in variables)
    return {
        name: value
        for name, _, value in pairs
        if name not in _OWN_VARIABLES and not name.startswith(_OWN_PREFIXES)
    }


@dataclass(frozen=True)
class ImageRecord:
    """A ready image: its id, its interpreter, and what its configuration sets."""

    image: str
    python: str
    version: str
    size_bytes: int
    variables: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that ENV sets, without those that the platform decides."""
        return environment_of(self.variables)

    @classmethod
    def of(cls, document: dict[str, Any]) -> Self:
        """Return the record of a document that `write` wrote."""
        return cls(
            **{
                **document,
                "variables": tuple(document["variables"]),
                "volumes": tuple(document["volumes"]),
            }
        )


class ImageRecords:
    """The records in a folder of the agent, one file for each image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, tag: str) -> ImageRecord | None:
        """Return the record of an image, None if it was not built here."""
        document = read_json(self._path(tag))
        try:
            return None if document is None else ImageRecord.of(document)
        except (KeyError, TypeError):
            return None

    def write(self, tag: str, record: ImageRecord) -> None:
        """Record a new image. Raises OSError."""
        write_atomically(self._path(tag), json.dumps({**asdict(record)}))

    def touch(self, tag: str) -> None:
        """Record a use: the least recently used is removed first."""
        os.utime(self._path(tag))

    def forget(self, tag: str) -> None:
        """Remove the record of an image."""
        self._path(tag).unlink(missing_ok=True)

    def outdated(self) -> list[str]:
        """Return the tags of images beyond `KEPT_IMAGES`, not used for longest."""
        aged = sorted((path.stat().st_mtime, path) for path in self.folder.glob("*.json"))
        return [
            path.stem.replace("=", ":")
            for used_at, path in aged[: max(0, len(aged) - KEPT_IMAGES)]
            if time.time() - used_at > _SPARE_S
        ]

    def _path(self, tag: str) -> Path:
        # A tag has one colon, and no slash.
        return self.folder / f"{tag.replace('/', '-').replace(':', '=')}.json"
