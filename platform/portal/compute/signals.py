"""Signals of this app, sent on commit."""

from dataclasses import dataclass

from portal.core.events import DomainSignal


@dataclass(frozen=True)
class NodeChanged:
    """A node joined, recovered or was removed, or its state or reported facts changed."""

    node_id: str


@dataclass(frozen=True)
class BuildChanged:
    """The build of an environment changed its state, or its log grew."""

    digest: str
    node_id: str


node_changed: DomainSignal[NodeChanged] = DomainSignal("node_changed")
build_changed: DomainSignal[BuildChanged] = DomainSignal("build_changed")
