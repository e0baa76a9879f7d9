"""Engines: schedulers of other systems that allocate machines for a placement of a workload.

An engine decides when and where. What it starts on each machine is our node agent
(`workers.node_agent.allocation`), which joins as a node for that placement alone, so leases, logs,
checkpoints and spend work as on every node. Only the control worker calls an engine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from portal.compute.resources import Amount


class AllocationPhase(StrEnum):
    """Progress of an engine with an allocation."""

    WAITING = "waiting"
    GRANTED = "granted"
    ENDED = "ended"


class EndCause(StrEnum):
    """Cause of the end of an allocation."""

    FINISHED = "finished"
    CANCELLED = "cancelled"
    PREEMPTED = "preempted"
    TIME_LIMIT = "time_limit"
    NODE_FAILED = "node_failed"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    # The engine does not know it any more, and said nothing of its end.
    VANISHED = "vanished"


@dataclass(frozen=True)
class AllocationOrder:
    """A gang to allocate: so many machines with so much for each, all of them or none.

    `name` is unique for ever, `label` is for people. `join_tokens` has one token for each task.
    `time_limit` is None for the engine's own default, and `grace` is the time between the signal
    that ends an allocation and the kill. `account` is the person's account in the engine's system,
    empty where all work of a pool has one owner. `project` is the slug of the project, which never
    changes and no other project ever gets. With `image` the task runs in that image of the project.
    `person` is the id of the person who submitted it.
    """

    name: str
    label: str
    tasks: int
    amount: Amount
    gpu_model: str
    time_limit: timedelta | None
    grace: timedelta
    join_tokens: tuple[str, ...]
    account: str = ""
    project: str = ""
    image: "OrderedImage | None" = None
    person: str = ""
    # Number within the batch that it is ordered in.
    place: int = 0


@dataclass(frozen=True)
class OrderedImage:
    """An image in a registry, by digest, and the path of the Python in it."""

    reference: str
    python: str


@dataclass(frozen=True)
class AllocationReport:
    """State of an allocation. `detail` is the engine's text: why it waits, or how it ended.

    `ends_at` is when a granted one reaches the engine's time limit, None without one.
    """

    phase: AllocationPhase
    detail: str = ""
    cause: EndCause | None = None
    ends_at: datetime | None = None


@dataclass(frozen=True)
class Owner:
    """An account of an engine's system, by name and number."""

    name: str
    number: int


@dataclass(frozen=True)
class Usage:
    """An engine's own accounting of an ended allocation.

    Each of its `machines` was held for `elapsed_s`. `cpu_s` is the time of all allocated CPUs,
    used or not. `resources` is the engine's text of all that was allocated.
    """

    elapsed_s: int
    machines: int
    cpu_s: int
    resources: str = ""


class EngineAway(Exception):
    """The engine does not answer, or not usefully. The call may be repeated."""


class EngineUnusable(EngineAway):
    """The engine answers, but not to this pool: rights, credentials or settings have to change."""


class EngineFull(EngineAway):
    """The engine takes no more orders of this account for now. The text names the limit."""


class EngineRefused(Exception):
    """The engine refuses an order for good. The text is for the person who submitted it."""


class AllocationDelayed(Exception):
    """An order waits for something of its own. Others of the pool go on. It may be repeated."""


# The handle of an allocation, or why there is none.
Answer = str | EngineRefused | EngineFull | AllocationDelayed


class Engine(Protocol):
    """A scheduler, with the settings of one pool. Calls raise EngineAway."""

    def submit(self, order: AllocationOrder) -> str:
        """Order an allocation and return the engine's handle of it.

        An order with the name of an earlier one returns the handle of that: a lost answer costs
        nothing. Raises EngineRefused, and AllocationDelayed from an engine without an answer yet.
        """

    def look(self, handles: Sequence[str]) -> Mapping[str, AllocationReport]:
        """Report on allocations, all of them in one question. Unknown handles have vanished."""

    def stop(self, handle: str, *, account: str = "") -> None:
        """End an allocation, whatever it does. One that is gone already is no error."""

    def owners_of(self, name: str) -> "frozenset[Owner]":
        """Return the owners of all jobs of this name."""


@runtime_checkable
class BatchEngine(Protocol):
    """An engine that also takes many alike orders at once."""

    def submit_many(self, batch: str, orders: Sequence[AllocationOrder]) -> Mapping[str, Answer]:
        """Order allocations and return an answer to each by its name. Raises EngineAway.

        They have one task each, and differ by name, label, token and place. `batch` is unique for
        ever; called again with it, and some or all of its orders, the handles are the same.
        """


def submit_many(
    engine: Engine, batch: str, orders: Sequence[AllocationOrder]
) -> Mapping[str, Answer]:
    """Order the allocations of a batch, one by one where the engine takes no batches.

    An order that is in no batch has its own name as that of the batch. Raises EngineAway.
    """
    if batch != orders[0].name and isinstance(engine, BatchEngine):
        return engine.submit_many(batch, orders)
    return submit_each(engine.submit, orders)


def submit_each(
    submit: Callable[[AllocationOrder], str], orders: Sequence[AllocationOrder]
) -> dict[str, Answer]:
    """Order allocations one by one, until no more are taken.

    Those without an answer are to be ordered again. Raises EngineAway if there is none at all.
    """
    answers: dict[str, Answer] = {}
    full: EngineFull | None = None
    for order in orders:
        if full is not None:
            answers[order.name] = full
            continue
        try:
            answers[order.name] = submit(order)
        except (EngineRefused, AllocationDelayed) as reason:
            answers[order.name] = reason
        except EngineFull as problem:
            full = answers[order.name] = problem
        except EngineAway:
            if not answers:
                raise
            break
    return answers


@runtime_checkable
class AccountingEngine(Protocol):
    """An engine that also accounts what each allocation has used."""

    def usage(self, handles: Sequence[str]) -> Mapping[str, Usage]:
        """Return the usage of ended allocations, all of them in one question.

        Those that are not accounted, or not yet, are left out. Raises EngineAway.
        """


@runtime_checkable
class WithdrawingEngine(Protocol):
    """An engine whose orders wait before they reach the scheduler."""

    def withdraw(self, name: str) -> bool:
        """Withdraw an order. Returns True if it has never reached the scheduler, and never will."""


class EngineKind(Protocol):
    """A kind of engine: checks the settings of a pool, and opens it."""

    @property
    def label(self) -> str:
        """The name that people read, such as "Slurm"."""

    def clean(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return checked settings. Raises InvalidInput, which names the field."""

    def open(self, pool: str, settings: Mapping[str, Any]) -> Engine:
        """Return the engine of a pool, given the pool's id."""

    def image_obstacle(self, settings: Mapping[str, Any]) -> str:
        """Return why a pool with these settings runs no images of projects, "" if it does."""

    def needs_account(self, settings: Mapping[str, Any]) -> bool:
        """Return True if work belongs to the account of the person who submits it."""

    def uses_helpers(self, settings: Mapping[str, Any]) -> bool:
        """Return True if only a helper of each person reaches the scheduler."""

    def given_accounts(self, settings: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return the accounts that an administrator gave people, by their address of e-mail.

        None where people prove their accounts themselves.
        """

    def link_command(self, settings: Mapping[str, Any], name: str) -> str:
        """Return the command with which a person proves an account: it submits a job `name`."""


_KINDS: dict[str, EngineKind] = {}


def image_obstacle(name: str, settings: Mapping[str, Any]) -> str:
    """Return why pools of a kind, with these settings, run no images of projects, as a clause.

    "" if they do.
    """
    kind = _KINDS.get(name)
    return kind.image_obstacle(settings) if kind is not None else "its engine is not known any more"


def register_engine(name: str, kind: EngineKind) -> None:
    """Register a kind of engine under the name that pools store."""
    _KINDS[name] = kind


def engine_kinds() -> Mapping[str, EngineKind]:
    """Return all kinds by name."""
    return _KINDS


def engine_label(name: str) -> str:
    """Return the name of a kind that people read."""
    return _KINDS[name].label if name in _KINDS else name
