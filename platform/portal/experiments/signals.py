"""The news this room sends up, on commit."""

from dataclasses import dataclass

from portal.core.events import DomainSignal


@dataclass(frozen=True)
class RunsChanged:
    """Runs or experiments of a project were put in the bin, taken out of it or destroyed."""

    project_id: str


runs_changed: DomainSignal[RunsChanged] = DomainSignal("runs_changed")
