"""Prices of bare resources over time, and the value of amounts of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from portal.compute.resources import GIB
from portal.spend.models import RatePrice
from portal.workloads.costs import MS_AN_HOUR, Steps, integral, unix_ms

RESOURCES = ("cpu", "memory", "gpu", "storage")
GB = 10**9
# nano-USD an hour, as for the suggested tiers. Storage is 0.023 USD per GB and month.
SUGGESTED = {
    "cpu": 40_000_000,
    "memory": 5_000_000,
    "gpu": 1_200_000_000,
    "storage": 31_507,
}
_UNITS = {"cpu": 1000, "memory": GIB, "gpu": 1, "storage": GB}
_WHOLE = 1000 * GIB * GB * MS_AN_HOUR


@dataclass(frozen=True, slots=True)
class Amounts:
    """Amount of each resource of an allocation."""

    cpu_millis: int = 0
    memory_bytes: int = 0
    gpus: int = 0
    stored_bytes: int = 0

    def items(self) -> Iterator[tuple[str, int]]:
        """Yield resource and amount in its own unit."""
        yield from zip(
            RESOURCES,
            (self.cpu_millis, self.memory_bytes, self.gpus, self.stored_bytes),
            strict=True,
        )


class Rates:
    """The prices of resources over time."""

    def __init__(self, steps: Mapping[str, Steps]) -> None:
        self.steps = {name: steps.get(name) or ((0, SUGGESTED[name]),) for name in RESOURCES}
        # Times at which any price changed, in Unix milliseconds.
        self.moments = frozenset(at for prices in self.steps.values() for at, _ in prices)

    @classmethod
    def read(cls) -> "Rates":
        """Read all rates, which are few."""
        values: dict[str, list[tuple[int, int]]] = {}
        for price in RatePrice.objects.all():
            at_ms = unix_ms(price.effective_from)
            values.setdefault(price.resource, []).append((at_ms, price.nano_usd_per_hour))
        return cls({name: tuple(sorted(steps)) for name, steps in values.items()})

    def worth(self, held: Amounts, *, begin_ms: int, end_ms: int) -> int:
        """Return the exact cost of holding these amounts, in `1 / WHOLE` nano-USD."""
        return sum(
            amount * integral(self.steps[name], begin_ms=begin_ms, end_ms=end_ms) * _per(name)
            for name, amount in held.items()
            if amount
        )

    def floor(self, held: Amounts, *, begin_ms: int, end_ms: int) -> int:
        """Return the cost of holding these amounts in nano-USD, rounded down."""
        return self.worth(held, begin_ms=begin_ms, end_ms=end_ms) // _WHOLE

    def ceiling(self, held: Amounts, *, begin_ms: int, end_ms: int) -> int:
        """Return the cost of holding these amounts in nano-USD, rounded up."""
        return -(-self.worth(held, begin_ms=begin_ms, end_ms=end_ms) // _WHOLE)

    def an_hour(self, held: Amounts, *, at_ms: int) -> int:
        """Return the cost per hour of these amounts at the prices of a given time."""
        return (
            sum(
                amount * integral(self.steps[name], begin_ms=at_ms, end_ms=at_ms + 1) * _per(name)
                for name, amount in held.items()
                if amount
            )
            * MS_AN_HOUR
            // _WHOLE
        )


def _per(name: str) -> int:
    return _WHOLE // MS_AN_HOUR // _UNITS[name]
