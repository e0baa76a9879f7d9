"""Progress output of the demo: steps with their time and cost, results with their URLs."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from slipway import Client
from slipway.schemas.money import dollars

Result = TypeVar("Result")
_REPORT_EVERY_S = 15.0


class DemoError(Exception):
    """Raised when a step of the demo has failed."""


@dataclass(frozen=True)
class CompletedStep:
    """A step that succeeded."""

    name: str
    seconds: float
    nano_usd: int


def show(name: str, text: str) -> None:
    """Print a result or its URL."""
    print(f"  {name + ':':<12} {text}", flush=True)


def wait_for(
    poll: Callable[[], Result | None], what: str, *, within_s: float, every_s: float = 0.1
) -> Result:
    """Poll until `poll` returns a value, and return it. Raises DemoError after `within_s` seconds.

    The pause between polls grows from `every_s` to five times that. What is waited for is printed
    from time to time.
    """
    started, pause_s, reports = time.monotonic(), every_s, 0
    while (result := poll()) is None:
        waited_s = time.monotonic() - started
        if waited_s > within_s:
            raise DemoError(f"{what}: not within {within_s:g} s")
        if waited_s > _REPORT_EVERY_S * (reports + 1):
            reports += 1
            print(f"  · {waited_s:.0f} s: waiting for {what}", flush=True)
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.05, 5 * every_s)
    return result


class ReasonReporter:
    """Prints the reason for a wait each time it changes."""

    def __init__(self) -> None:
        self._last = ""

    def report(self, reason: str) -> None:
        """Print the reason, unless it is empty or the last one."""
        if reason and reason != self._last:
            print(f"  · {reason}", flush=True)
        self._last = reason or self._last


class StepReporter:
    """Prints each step, how long it took, and its cost to the project."""

    def __init__(self) -> None:
        self.done: list[CompletedStep] = []
        self._project: tuple[Client, str] | None = None
        self._spent_before = 0

    def track_cost(self, client: Client, project: str) -> None:
        """From now on, count what `project` spends during a step as the cost of the step."""
        self._project = client, project
        self._spent_before = self._spent()

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Print the name of a step, and at its end its duration and cost."""
        started = time.monotonic()
        self._spent_before = self._spent()
        print(f"\n▸ {name}", flush=True)
        yield
        took, cost = time.monotonic() - started, max(0, self._spent() - self._spent_before)
        self.done.append(CompletedStep(name, took, cost))
        print(f"  done in {took:.1f} s, cost {dollars(cost)}", flush=True)

    def print_summary(self) -> None:
        """Print a table of all steps."""
        print("\n  seconds          cost  step")
        for step in self.done:
            print(f"  {step.seconds:>7.1f}  {dollars(step.nano_usd):>12}  {step.name}")
        seconds = sum(step.seconds for step in self.done)
        cost = sum(step.nano_usd for step in self.done)
        print(f"  {seconds:>7.1f}  {dollars(cost):>12}  total", flush=True)

    def _spent(self) -> int:
        if self._project is None:
            return 0
        client, project = self._project
        return client.spend.get(project=project).nano_usd
