"""Signals of this app, sent on commit."""

from dataclasses import dataclass

from portal.core.events import DomainSignal


@dataclass(frozen=True)
class VersionReady:
    """A version has become ready: jobs may read it."""

    version_id: str


version_ready: DomainSignal[VersionReady] = DomainSignal("version_ready")
