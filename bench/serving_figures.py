"""Figures of `serving.py`, and how those of two servers are compared."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CONCURRENCY = (1, 16, 64)
Cases = dict[str, dict[str, Any]]


@dataclass
class Load:
    """What wrk found at one concurrency."""

    rps: float
    p50_ms: float
    p99_ms: float
    refused: int = 0


Loads = dict[int, list[Load]]
Figure = Callable[[Load], float]


def middle(loads: list[Load]) -> Load:
    """Return the medians."""
    return Load(
        statistics.median(load.rps for load in loads),
        statistics.median(load.p50_ms for load in loads),
        statistics.median(load.p99_ms for load in loads),
        sum(load.refused for load in loads),
    )


def middles(found: Loads) -> dict[int, Load]:
    """Return the medians at each concurrency."""
    return {number: middle(loads) for number, loads in found.items()}


@dataclass
class Pair:
    """Ours and a peer, pressed in turns, the n-th press of one after the n-th of the other."""

    ours: Loads
    peer: Loads

    def add(self, more: "Pair") -> None:
        """Take what further starts gave."""
        for mine, its in ((self.ours, more.ours), (self.peer, more.peer)):
            for number, loads in its.items():
                mine[number] += loads

    def case(self, concurrency: int, figure: Figure, unit: str) -> dict[str, Any]:
        """Compare one figure at one concurrency."""
        mine, its = ([figure(load) for load in x[concurrency]] for x in (self.ours, self.peer))
        return case(mine, its, unit)


def case(mine: list[float], peer: list[float], unit: str) -> dict[str, Any]:
    """One line of the table, of figures that were found in turns."""
    ratios = [one / other for one, other in zip(mine, peer, strict=True) if other]
    return {
        "ours": round(statistics.median(mine), 3),
        "peer": round(statistics.median(peer), 3),
        "ratio": round(statistics.median(ratios), 3) if ratios else None,
        "unit": unit,
        "pairs": len(ratios),
    }


def rps(load: Load) -> float:
    """Answers a second."""
    return load.rps


def p50_ms(load: Load) -> float:
    """What half of the requests take longer than."""
    return load.p50_ms


def p99_ms(load: Load) -> float:
    """What one request in a hundred takes longer than."""
    return load.p99_ms


def best_peers(pairs: dict[str, Pair], number: int) -> tuple[str, str]:
    """Name who answers most at a concurrency, and who does with the least p99."""
    loads = {name: middle(pair.peer[number]) for name, pair in pairs.items()}
    return (
        max(loads, key=lambda name: loads[name].rps),
        min(loads, key=lambda name: loads[name].p99_ms),
    )


def comparison_cases(pairs: dict[str, Pair], started: dict[str, list[float]]) -> Cases:
    """Compare with the best of the peers at each concurrency, and with some by name."""
    cases: Cases = {}
    for number in CONCURRENCY if pairs else ():
        most, quickest = best_peers(pairs, number)
        cases[f"rps_c{number}_vs_best_peer"] = pairs[most].case(number, rps, "requests/s")
        cases[f"p99_c{number}_vs_best_peer"] = pairs[quickest].case(number, p99_ms, "ms")
    for name, pair in pairs.items():
        for number in (64, 1):
            cases[f"rps_c{number}_vs_{name}"] = pair.case(number, rps, "requests/s")
    if "mlflow" in started:
        cases["start_to_first_prediction_vs_mlflow"] = case(
            [statistics.median(started["ours"])], started["mlflow"], "s"
        )
    return cases
