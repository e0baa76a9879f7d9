"""Isolation levels of the back ends of a node. No Django, no I/O."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from slipway.schemas.agent import IsolationFacts
from slipway.schemas.backends import BACKENDS, IsolationLevel

SHARED: Final[IsolationLevel] = "shared"
# The feature of a back end that can restrict tasks to the platform's network.
NETWORK: Final = "network"
MIXING_RISK: Final = (
    "Code of one project can read files, memory and secrets of other projects that run on this "
    "node."
)
_MEANINGS: Final[Mapping[IsolationLevel, str]] = {
    "namespaces": "Tasks of different projects cannot see each other's files, processes, memory "
    "or sockets.",
    "users": (
        "Each project has its own Unix user, so tasks of different projects cannot read each "
        "other's files or memory. They can see other processes."
    ),
    "containers": (
        "Each task runs in its own Docker container, separate from the tasks of other projects."
    ),
    "shared": "Tasks run as one user; one project at a time.",
}
_MIXED: Final = (
    "Tasks run as one user, and tasks of several projects may run on this node at once. "
    f"{MIXING_RISK}"
)
_STRENGTH: Final[Mapping[str, int]] = {"shared": 0, "users": 1, "containers": 2, "namespaces": 2}
_UNREPORTED: Final = "This node's agent does not report its isolation. Update the agent."


@dataclass(frozen=True, slots=True)
class Isolation:
    """Isolation of tasks of different projects in one back end of a node."""

    backend: str
    level: IsolationLevel
    features: tuple[str, ...] = ()
    detail: str = ""

    @property
    def is_shared(self) -> bool:
        """True if tasks of different projects can reach each other there."""
        return self.level == SHARED

    @property
    def enforces_network(self) -> bool:
        """True if it can restrict tasks to the platform's network."""
        return NETWORK in self.features

    def meaning(self, *, mixes_projects: bool = False) -> str:
        """Return a description of the level in plain words."""
        return _MIXED if self.is_shared and mixes_projects else _MEANINGS[self.level]

    def is_weaker_than(self, other: "Isolation") -> bool:
        """Return True if the boundary is weaker: a lower level, or the same with fewer features."""
        if _STRENGTH[self.level] != _STRENGTH[other.level]:
            return _STRENGTH[self.level] < _STRENGTH[other.level]
        return not set(self.features) >= set(other.features)

    def __str__(self) -> str:
        return f"{self.level} ({', '.join(self.features)})" if self.features else self.level


def isolation_of(
    backends: Collection[str], reported: Iterable[Mapping[str, Any]]
) -> list[Isolation]:
    """Return the isolation of each back end, from what the node's agent has reported.

    Of several reports on one back end the weakest counts. Without a report Docker counts as
    `containers` and everything else as `shared`.
    """
    weakest: dict[str, Isolation] = {}
    for report in reported:
        isolation = Isolation(
            backend=report["backend"],
            level=report["level"],
            features=tuple(report["features"]),
            detail=report["detail"],
        )
        known = weakest.setdefault(isolation.backend, isolation)
        if isolation.is_weaker_than(known):
            weakest[isolation.backend] = isolation
    return [weakest.get(backend) or _unreported(backend) for backend in backends]


def _unreported(backend: str) -> Isolation:
    # The row of a node may name a back end that this version no longer has.
    level = BACKENDS[backend].unreported_isolation if backend in BACKENDS else SHARED
    return Isolation(backend, level, detail=_UNREPORTED)


def stored_reports(details: Iterable[IsolationFacts]) -> list[dict[str, Any]]:
    """Return reports of an agent in the format of a node's row."""
    return [report.model_dump(mode="json") for report in details]


def weakened(
    before: Iterable[Isolation], after: Iterable[Isolation]
) -> list[tuple[Isolation, Isolation]]:
    """Return the back ends whose isolation became weaker, before and after."""
    known = {isolation.backend: isolation for isolation in before}
    return [
        (known[isolation.backend], isolation)
        for isolation in after
        if isolation.backend in known and isolation.is_weaker_than(known[isolation.backend])
    ]
