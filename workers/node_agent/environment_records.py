"""Records of environments that are ready on this node's disk."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from workers.launcher.atomic_files import read_json, write_atomically
from workers.launcher.processes import boot_id
from workers.node_agent.backends.base import PreparedEnvironment
from workers.node_agent.manifests import (
    ContentChanged,
    Manifest,
    compare,
    fingerprint_of,
    record,
)

# Of format 2 every content is compared once more: it has no fingerprint.
_FORMAT: Final = 3
_FORMATS: Final = (2, _FORMAT)


@dataclass(frozen=True)
class EnvironmentRecord:
    """Record that the agent wrote about a ready environment.

    Until its content is recorded behind the first task, it has no `digest`, and its `fingerprint`
    is that of all but bytecode. No user can set a ctime, so an equal fingerprint proves in the same
    `boot` that nothing was written. After another boot, files may have lost what was not on the
    disk yet, or have been changed from another system.
    """

    attempt: Path
    digest: str
    size_bytes: int
    locked: str
    base: str
    places: tuple[str, ...]
    fingerprint: str = ""
    boot: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.attempt / "bin" / "python"

    @property
    def manifest(self) -> Path:
        """The file that lists what the environment consists of."""
        return self.attempt.with_name(f"manifest-{self.attempt.name}")

    def prepared(self) -> PreparedEnvironment:
        """Return it as a back end knows it."""
        return PreparedEnvironment(
            str(self.python),
            size_bytes=self.size_bytes,
            locked=self.locked,
            readable=(str(self.attempt), *self.places),
            variables=self.variables,
        )

    def write(self) -> None:
        """Publish it."""
        details = {
            "format": _FORMAT,
            "attempt": self.attempt.name,
            "digest": self.digest,
            "size_bytes": self.size_bytes,
            "locked": self.locked,
            "base": self.base,
            "places": self.places,
            "fingerprint": self.fingerprint,
            "boot": self.boot,
            "variables": dict(self.variables),
        }
        write_atomically(self.attempt.with_name("ready.json"), json.dumps(details))

    @classmethod
    def read(cls, home: Path) -> "EnvironmentRecord | None":
        """Return the published environment, or None if there is none in the current format."""
        document: dict[str, Any] = read_json(home / "ready.json") or {}
        if document.get("format") not in _FORMATS:
            return None
        published = cls(
            home / document["attempt"],
            document["digest"],
            document["size_bytes"],
            document["locked"],
            document["base"],
            tuple(document["places"]),
            document.get("fingerprint", ""),
            document.get("boot", ""),
            document.get("variables", {}),
        )
        if not published.digest and published.boot != boot_id():
            return None
        return published if os.access(published.python, os.X_OK) else None

    @property
    def is_compiled(self) -> bool:
        """True once all its bytecode is there and recorded."""
        return self.attempt.with_name("compiled").exists()

    def checked(self) -> "EnvironmentRecord":
        """Compare the environment with this record and return the record of its current status.

        Reads contents only of files whose status has changed, or of all after a boot. Raises
        ContentChanged.
        """
        boot = boot_id()
        is_same_boot = bool(self.fingerprint) and self.boot == boot
        if is_same_boot:
            fingerprint = fingerprint_of(self.attempt, bytecode=bool(self.digest))
            if fingerprint == self.fingerprint:
                return self
        if not self.digest:
            raise ContentChanged("one of its files", "was touched before its content was recorded")
        before = self.checked_manifest()
        manifest = compare(
            *(self.attempt, before),
            everything=not is_same_boot,
            bytecode="listed" if self.is_compiled else "removed",
        )
        if manifest != before:
            manifest.write(self.manifest)
        return self._with(manifest)

    def recorded(self) -> "EnvironmentRecord":
        """Record the content of all files and publish it. Raises ContentChanged, and OSError."""
        manifest = record(self.attempt, self.fingerprint)
        manifest.write(self.manifest)
        recorded = self._with(manifest)
        recorded.write()
        return recorded

    def compiled(self) -> "EnvironmentRecord":
        """Record and publish it with its bytecode. Raises ContentChanged, and OSError."""
        manifest = compare(
            self.attempt, self.checked_manifest(), everything=False, bytecode="accepted"
        )
        manifest.write(self.manifest)
        compiled = replace(self._with(manifest), size_bytes=manifest.size_bytes())
        compiled.write()
        self.attempt.with_name("compiled").touch()
        return compiled

    def _with(self, manifest: Manifest) -> "EnvironmentRecord":
        return replace(
            self, digest=manifest.digest(), fingerprint=manifest.fingerprint(), boot=boot_id()
        )

    def checked_manifest(self) -> Manifest:
        """Return its manifest. Raises ContentChanged."""
        try:
            manifest = Manifest.read(self.manifest)
        except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
            raise ContentChanged("its manifest", "cannot be read") from error
        if manifest.digest() != self.digest:
            raise ContentChanged("its manifest", "was changed")
        return manifest
