"""What rooms above fill in: who may run for money, and what kinds of workload there are."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from portal.core.errors import InvalidInput
from portal.workloads.retries import RetryRule
from slipway.schemas.accounts import Scope
from slipway.schemas.agent import Report

Warm = Literal["torch", "jupyterlab"]


@dataclass(frozen=True)
class AdmissionRequest:
    """Somebody wants to run something. `nano_usd_per_hour` is the price of all its tasks."""

    workload_id: str
    project_id: str
    user_id: str
    kind: str
    tier: str
    tasks: int
    nano_usd_per_hour: int
    max_lifetime_s: int | None


@dataclass(frozen=True)
class Admitted:
    """It may queue."""


@dataclass(frozen=True)
class Held:
    """It may queue later, and is asked about again; `why` is a sentence: what it waits for."""

    why: str


class Admission(Protocol):
    """Decides whether a workload may queue. Refusing for good is raising a `SlipwayError`."""

    def ask(self, request: AdmissionRequest) -> Admitted | Held:
        """Decide, inside the transaction that submits; database work alone."""


class AdmitEverything:
    """The admission in force while no room above has an opinion."""

    def ask(self, request: AdmissionRequest) -> Admitted | Held:
        """Admit."""
        return Admitted()


class Surroundings(Protocol):
    """What a kind adds to the environment of its tasks, beside the project's secrets."""

    def __call__(self, *, workload_id: str, index: int) -> Mapping[str, str]:
        """Return variables; called each time an agent asks, so the same ones each time."""


def _nothing(*, workload_id: str, index: int) -> Mapping[str, str]:
    return {}


class ReportKeeper(Protocol):
    """Keeps what tasks of a kind report beyond what every workload does."""

    def __call__(self, *, workload_id: str, attempt: int, report: Report, at: datetime) -> str:
        """Take in a report of progress of the present attempt; return a line for the story, or "".

        Called inside the transaction that takes the report in, and again when that is repeated; an
        earlier report may come after a later one. Database work alone.
        """


def _keep_nothing(*, workload_id: str, attempt: int, report: Report, at: datetime) -> str:
    return ""


@dataclass(frozen=True)
class Kind:
    """A kind of workload and its defaults. `noun` is what people call one.

    `moves_when_drained` lets the platform stop it and queue it again; `keeps_on_fence` lets it run
    on while its node cannot reach the portal, so a second one may run meanwhile. `scopes` are those
    of the token its tasks get, which speaks for who submitted it, in its project alone.
    """

    name: str
    noun: str
    retry: RetryRule = field(default_factory=RetryRule)
    moves_when_drained: bool = False
    keeps_on_fence: bool = False
    stop_grace_s: float = 10.0
    hang_after_s: float | None = None
    warm: Warm | None = None
    scopes: tuple[Scope, ...] = (Scope.PROJECTS_READ, Scope.FILES_READ, Scope.FILES_WRITE)
    surroundings: Surroundings = _nothing
    keep_report: ReportKeeper = _keep_nothing


class _Registry:
    """What rooms above have registered in this process."""

    def __init__(self) -> None:
        self.admission: Admission = AdmitEverything()
        self.kinds: dict[str, Kind] = {}


_registry = _Registry()


def register_admission(admission: Admission) -> None:
    """Put an admission in force; called once, from a room's wiring."""
    _registry.admission = admission


def admission() -> Admission:
    """Return the admission in force."""
    return _registry.admission


def register_kind(kind: Kind) -> None:
    """Make a kind known; called from a room's wiring. The same kind again replaces it."""
    _registry.kinds[kind.name] = kind


def known_kind(name: str) -> Kind:
    """Return a kind that may be submitted; raises InvalidInput for an unknown one."""
    if name not in _registry.kinds:
        known = ", ".join(sorted(_registry.kinds)) or "none"
        raise InvalidInput(
            f"There is no kind of workload called {name}.",
            field="kind",
            next_step=f"Known kinds: {known}.",
        )
    return _registry.kinds[name]


def kind_of(name: str) -> Kind:
    """Return the kind of a stored workload, with plain defaults if its room is gone."""
    return _registry.kinds.get(name) or Kind(name=name, noun=name.replace("_", " "))


def warm_flavours() -> list[Warm]:
    """Return the flavours of warm process that known kinds start from."""
    return sorted({kind.warm for kind in _registry.kinds.values() if kind.warm is not None})
