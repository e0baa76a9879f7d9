"""What the room needs from outside, and what rooms above tell it."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from portal.accounts.models import Project
from slipway.schemas.registry import LineageEdge, LineageNode, NodeKind


class FilesUnreadable(Exception):
    """The files of a version cannot be read now; the message says why."""


@dataclass(frozen=True)
class ModelFolderFile:
    """A file below the folder of a model. `path` is relative to it, with slashes."""

    path: str
    size_bytes: int


class ModelFiles(Protocol):
    """The files of models where MLflow keeps them. They are read as bytes and never loaded."""

    def files(self, folder: str, *, limit: int) -> Sequence[ModelFolderFile]:
        """Return at most `limit` files below a folder, by path; raises FilesUnreadable."""

    def has_files(self, place: str) -> bool:
        """Return whether this is a file, or a folder with one below it; raises FilesUnreadable."""

    def head(self, folder: str, path: str, *, limit_bytes: int) -> bytes:
        """Return the first bytes of a file; raises FilesUnreadable."""

    def opened(self, folder: str, path: str) -> AbstractContextManager[BinaryIO]:
        """Open a file to read parts of it wherever they stand; raises FilesUnreadable."""

    def sha256(self, folder: str, path: str) -> str:
        """Return the SHA-256 of a file, read in constant memory; raises FilesUnreadable."""

    def pieces(self, folder: str, path: str) -> Iterator[bytes]:
        """Yield the bytes of a file; raises FilesUnreadable."""


@dataclass(frozen=True)
class Descendants:
    """What came of a version: nodes and the edges to them, and how many more there are."""

    nodes: Sequence[LineageNode] = field(default_factory=tuple)
    edges: Sequence[LineageEdge] = field(default_factory=tuple)
    left_out: int = 0


class Downstream(Protocol):
    """A room above that knows what came of a version: endpoint revisions, predictions."""

    def __call__(self, *, project_id: str, model: str, version: int, key: str) -> Descendants:
        """Return what came of a version, whose node has that `key`."""


class LineageSource(Protocol):
    """A room above that knows which version something of its own came of."""

    def __call__(self, *, project: Project, name: str) -> tuple[str, int]:
        """Return the model and the number of the version behind `name`; raises NotFound."""


_downstream: list[Downstream] = []
_upstream: dict[NodeKind, LineageSource] = {}


def register_downstream(source: Downstream) -> None:
    """Add what a room above knows to the graphs of lineage; called from its wiring."""
    if source not in _downstream:
        _downstream.append(source)


def downstream() -> Sequence[Downstream]:
    """Return who knows what came of versions."""
    return tuple(_downstream)


def register_upstream(kind: NodeKind, source: LineageSource) -> None:
    """Let the graph around a node of that kind be asked for; called from a room's wiring."""
    _upstream[kind] = source


def upstream(kind: NodeKind) -> LineageSource | None:
    """Return who knows the versions behind nodes of a kind."""
    return _upstream.get(kind)
