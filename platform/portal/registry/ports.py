"""Ports of this app: files of models, and lineage that other apps provide."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from portal.accounts.models import Project
from slipway.schemas.registry import LineageEdge, LineageNode, NodeKind


class FilesUnreadable(Exception):
    """The files of a version cannot be read now. The message states the reason."""


@dataclass(frozen=True)
class ModelFolderFile:
    """A file below the folder of a model. `path` is relative to it, with slashes."""

    path: str
    size_bytes: int


class ModelFiles(Protocol):
    """The stored files of models. They are read as bytes and never loaded."""

    def files(self, folder: str, *, limit: int) -> Sequence[ModelFolderFile]:
        """Return at most `limit` files below a folder, by path. Raises FilesUnreadable."""

    def has_files(self, place: str) -> bool:
        """Return whether this is a file, or a folder with one below it. Raises FilesUnreadable."""

    def head(self, folder: str, path: str, *, limit_bytes: int) -> bytes:
        """Return the first bytes of a file. Raises FilesUnreadable."""

    def opened(self, folder: str, path: str) -> AbstractContextManager[BinaryIO]:
        """Open a file for random access. Raises FilesUnreadable."""

    def sha256(self, folder: str, path: str) -> str:
        """Return the SHA-256 of a file, read in constant memory. Raises FilesUnreadable."""

    def pieces(self, folder: str, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file. Raises FilesUnreadable."""


@dataclass(frozen=True)
class Descendants:
    """Nodes derived from a version and the edges to them. `left_out` more were omitted."""

    nodes: Sequence[LineageNode] = field(default_factory=tuple)
    edges: Sequence[LineageEdge] = field(default_factory=tuple)
    left_out: int = 0


class Downstream(Protocol):
    """Provides the nodes derived from a version: endpoint revisions, predictions."""

    def __call__(self, *, project_id: str, model: str, version: int, key: str) -> Descendants:
        """Return the nodes derived from a version, whose own node has that `key`."""


class LineageSource(Protocol):
    """Provides the version that an object of another app is derived from."""

    def __call__(self, *, project: Project, name: str) -> tuple[str, int]:
        """Return the model and the number of the version behind `name`. Raises NotFound."""


_downstream: list[Downstream] = []
_upstream: dict[NodeKind, LineageSource] = {}


def register_downstream(source: Downstream) -> None:
    """Add the nodes of another app to lineage graphs. Called from its wiring."""
    if source not in _downstream:
        _downstream.append(source)


def downstream() -> Sequence[Downstream]:
    """Return the registered providers of derived nodes."""
    return tuple(_downstream)


def register_upstream(kind: NodeKind, source: LineageSource) -> None:
    """Enable lineage graphs around nodes of that kind. Called from the wiring of an app."""
    _upstream[kind] = source


def upstream(kind: NodeKind) -> LineageSource | None:
    """Return the registered provider of the versions behind nodes of a kind."""
    return _upstream.get(kind)
