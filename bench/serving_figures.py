"""Figures of `serving.py`, and comparisons of two servers."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

CONCURRENCY = (1, 16, 64)
Cases = dict[str, dict[str, Any]]


@dataclass
class Load:
    """Result of wrk at one concurrency."""

    rps: float
    p50_ms: float
    p99_ms: float
    refused: int = 0


Loads = dict[int, list[Load]]
Figure = Callable[[Load], float]


def middle(loads: list[Load]) -> Load:
    """Return the medians of loads."""
    return Load(
        statistics.median(load.rps for load in loads),
        statistics.median(load.p50_ms for load in loads),
        statistics.median(load.p99_ms for load in loads),
        sum(load.refused for load in loads),
    )


def middles(results: Loads) -> dict[int, Load]:
    """Return the medians at each concurrency."""
    return {number: middle(loads) for number, loads in results.items()}


@dataclass
class Pair:
    """Loads of Slipway and a peer, measured in turns: the n-th loads of both belong together."""

    ours: Loads
    peer: Loads

    def add(self, more: "Pair") -> None:
        """Add the loads of a further start."""
        for own, added in ((self.ours, more.ours), (self.peer, more.peer)):
            for number, loads in added.items():
                own[number] += loads

    def case(self, concurrency: int, figure: Figure, unit: str) -> dict[str, Any]:
        """Compare one figure at one concurrency."""
        ours, peer = (
            [figure(load) for load in side[concurrency]] for side in (self.ours, self.peer)
        )
        return case(ours, peer, unit)


def case(ours: list[float], peer: list[float], unit: str) -> dict[str, Any]:
    """Return one line of the table, from figures that were measured in turns."""
    ratios = [left / right for left, right in zip(ours, peer, strict=True) if right]
    return {
        "ours": round(statistics.median(ours), 3),
        "peer": round(statistics.median(peer), 3),
        "ratio": round(statistics.median(ratios), 3) if ratios else None,
        "unit": unit,
        "pairs": len(ratios),
    }


def rps(load: Load) -> float:
    """Return requests per second."""
    return load.rps


def p50_ms(load: Load) -> float:
    """Return the median latency."""
    return load.p50_ms


def p99_ms(load: Load) -> float:
    """Return the 99th percentile of latency."""
    return load.p99_ms


def best_peers(pairs: dict[str, Pair], number: int) -> tuple[str, str]:
    """Return the peers with the highest throughput and with the lowest p99 at a concurrency."""
    loads = {name: middle(pair.peer[number]) for name, pair in pairs.items()}
    return (
        max(loads, key=lambda name: loads[name].rps),
        min(loads, key=lambda name: loads[name].p99_ms),
    )


def comparison_cases(pairs: dict[str, Pair], started: dict[str, list[float]]) -> Cases:
    """Compare with the best peer at each concurrency, and with every peer by name."""
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
