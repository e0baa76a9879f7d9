"""How the demo tells what it does: steps with their time and cost, results with their address."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from slipway import Client
from slipway.schemas.money import dollars

Found = TypeVar("Found")


class DemoError(Exception):
    """A step did not do what it is there for; the message says which and why."""


@dataclass(frozen=True)
class CompletedStep:
    """A step that succeeded."""

    what: str
    seconds: float
    nano_usd: int


def show(name: str, words: str) -> None:
    """Print a result, or where it is to be seen."""
    print(f"  {name + ':':<12} {words}", flush=True)


def wait_for(
    look: Callable[[], Found | None], what: str, *, within_s: float, every_s: float = 0.1
) -> Found:
    """Return what `look` finds; raises DemoError after `within_s` seconds.

    Who has waited for long looks less often, down to once in five of the first pauses.
    """
    deadline, pause_s = time.monotonic() + within_s, every_s
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise DemoError(f"{what}: not within {within_s:g} s")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.05, 5 * every_s)
    return found


class StepReporter:
    """Names each step, and says how long it took and what the project has cost meanwhile."""

    def __init__(self) -> None:
        self.done: list[CompletedStep] = []
        self._payer: tuple[Client, str] | None = None
        self._spent_before = 0

    def pay_from(self, client: Client, project: str) -> None:
        """From now on steps cost what `project` spends while they last."""
        self._payer = client, project
        self._spent_before = self._spent()

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Name a step; when it is over, say its time and its cost."""
        began = time.monotonic()
        self._spent_before = self._spent()
        print(f"\n▸ {what}", flush=True)
        yield
        took, cost = time.monotonic() - began, max(0, self._spent() - self._spent_before)
        self.done.append(CompletedStep(what, took, cost))
        print(f"  done in {took:.1f} s, cost {dollars(cost)}", flush=True)

    def sum_up(self) -> None:
        """Print all steps once more, in a table."""
        print("\n  seconds          cost  step")
        for one in self.done:
            print(f"  {one.seconds:>7.1f}  {dollars(one.nano_usd):>12}  {one.what}")
        seconds = sum(one.seconds for one in self.done)
        cost = sum(one.nano_usd for one in self.done)
        print(f"  {seconds:>7.1f}  {dollars(cost):>12}  in all", flush=True)

    def _spent(self) -> int:
        if self._payer is None:
            return 0
        client, project = self._payer
        return client.spend.get(project=project).nano_usd
