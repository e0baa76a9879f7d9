"""Signals of this app, sent on commit."""

from dataclasses import dataclass

from portal.core.events import DomainSignal


@dataclass(frozen=True)
class RunsChanged:
    """Runs or experiments of a project were moved to the trash, restored or destroyed."""

    project_id: str


runs_changed: DomainSignal[RunsChanged] = DomainSignal("runs_changed")
