"""Arrays of Slurm: one submission, and one line of squeue, for many allocations of one task."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from portal.compute.adapters.engines.slurm.reports import JobLine
from portal.compute.engines import AllocationOrder

# Slurm shortens long lists of elements.
_SHORTENED: Final = "..."
_MOST_INDICES: Final = 100_000


def master_of(handle: str) -> str:
    """Return the number of a job, or of the array that it is an element of."""
    return handle.partition("_")[0]


def masters_of(handles: Iterable[str]) -> list[str]:
    """Return the numbers of jobs and arrays, each once."""
    return list(dict.fromkeys(map(master_of, handles)))


def is_element(handle: str) -> bool:
    """Return True for an element of an array."""
    return "_" in handle


def is_stale(line: JobLine) -> bool:
    """Return True for an element that waits by the accounting, and which slurmctld does not know.

    It was cancelled while it waited, and the record of its array does not say so yet.
    """
    return is_element(line.handle) and line.state == "PENDING"


def spec_of(orders: Sequence[AllocationOrder]) -> str:
    """Return the option --array for orders: their places."""
    places = sorted(order.place for order in orders)
    if places == list(range(places[0], places[-1] + 1)):
        return f"{places[0]}-{places[-1]}"
    return ",".join(map(str, places))


def expanded(handle: str) -> list[str]:
    """Return the handles that a column of Slurm stands for: `7`, `7_3` or `7_[1,4-9%2]`."""
    master, _, element = handle.partition("_")
    if not element.startswith("["):
        return [handle]
    return [f"{master}_{index}" for index in indices_of(element.strip("[]"))]


def indices_of(text: str) -> list[int]:
    """Return the indices of a list such as `1,4-9%2`, as far as it can be read."""
    indices: list[int] = []
    for part in text.partition("%")[0].split(","):
        first, _, last = part.partition("-")
        last = last or first
        if first.isdecimal() and last.isdecimal() and int(last) - int(first) < _MOST_INDICES:
            indices += range(int(first), int(last) + 1)
    return indices


def is_shortened(text: str) -> bool:
    """Return True if a list of elements goes on."""
    return text.rstrip("]").endswith(_SHORTENED)


def handles_of(
    batch: str, orders: Sequence[AllocationOrder], lines: Iterable[JobLine]
) -> Mapping[str, str]:
    """Return the handles of orders that Slurm has, by the jobs of their names or of their batch.

    All orders of a batch that Slurm has no job for are elements of its array, if there is one.
    """
    singles = {line.name: line.handle for line in lines if line.name != batch}
    arrays = {master_of(line.handle) for line in lines if line.name == batch}
    array = min(arrays, key=int, default="")
    handles = {}
    for order in orders:
        if order.name in singles:
            handles[order.name] = singles[order.name]
        elif array:
            handles[order.name] = f"{array}_{order.place}"
    return handles
