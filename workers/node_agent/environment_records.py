"""Records of environments that are ready on this node's disk."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from workers.launcher.atomic_files import read_json, write_atomically
from workers.node_agent.backends.base import PreparedEnvironment
from workers.node_agent.manifests import ContentChanged, Manifest, compare

_FORMAT: Final = 2


@dataclass(frozen=True)
class EnvironmentRecord:
    """Record that the agent wrote about a ready environment."""

    attempt: Path
    digest: str
    size_bytes: int
    locked: str
    base: str
    places: tuple[str, ...]
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
            "variables": dict(self.variables),
        }
        write_atomically(self.attempt.with_name("ready.json"), json.dumps(details))

    @classmethod
    def read(cls, home: Path) -> "EnvironmentRecord | None":
        """Return the published environment, or None if there is none in the current format."""
        document: dict[str, Any] = read_json(home / "ready.json") or {}
        if document.get("format") != _FORMAT:
            return None
        published = cls(
            home / document["attempt"],
            document["digest"],
            document["size_bytes"],
            document["locked"],
            document["base"],
            tuple(document["places"]),
            document.get("variables", {}),
        )
        return published if os.access(published.python, os.X_OK) else None

    def checked_manifest(self) -> Manifest:
        """Return its manifest. Raises ContentChanged."""
        try:
            manifest = Manifest.read(self.manifest)
        except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
            raise ContentChanged("its manifest", "cannot be read") from error
        if manifest.digest() != self.digest:
            raise ContentChanged("its manifest", "was changed")
        return manifest

    def manifest_with_bytecode(self) -> Manifest:
        """Return the manifest once all bytecode is there. Raises ContentChanged."""
        manifest = compare(
            self.attempt, self.checked_manifest(), everything=False, bytecode="accepted"
        )
        manifest.write(self.manifest)
        return manifest
