"""Resource requirements and capacities, and their formatting. No Django, no I/O."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from slipway.schemas.accounts import NetworkRule

GIB = 1024**3
# Weight of one CPU in the fair share against memory and GPUs.
_MEMORY_BYTES_A_CPU = 4 * GIB
_CPUS_A_GPU = 16


@dataclass(frozen=True, slots=True)
class Amount:
    """Thousandths of a CPU, bytes of memory, whole GPUs."""

    cpu_millis: int
    memory_bytes: int
    gpus: int = 0

    def times(self, count: int) -> "Amount":
        """Return `count` times as much."""
        return Amount(self.cpu_millis * count, self.memory_bytes * count, self.gpus * count)

    def plus(self, other: "Amount") -> "Amount":
        """Return the sum."""
        return Amount(
            self.cpu_millis + other.cpu_millis,
            self.memory_bytes + other.memory_bytes,
            self.gpus + other.gpus,
        )

    def minus(self, other: "Amount") -> "Amount":
        """Return the difference, with every component at least 0."""
        return Amount(
            max(0, self.cpu_millis - other.cpu_millis),
            max(0, self.memory_bytes - other.memory_bytes),
            max(0, self.gpus - other.gpus),
        )

    def covers(self, other: "Amount") -> bool:
        """Return True if `other` fits into this amount."""
        return (
            self.cpu_millis >= other.cpu_millis
            and self.memory_bytes >= other.memory_bytes
            and self.gpus >= other.gpus
        )

    def count_of(self, need: "Amount") -> int:
        """Return how many times `need` fits into this."""
        counts = [
            have // want
            for have, want in (
                (self.cpu_millis, need.cpu_millis),
                (self.memory_bytes, need.memory_bytes),
                (self.gpus, need.gpus),
            )
            if want
        ]
        return min(counts, default=0)

    @property
    def fair_millis(self) -> int:
        """The weight in the fair share, in thousandths of a CPU: the dominant resource counts."""
        return max(
            self.cpu_millis,
            self.memory_bytes * 1000 // _MEMORY_BYTES_A_CPU,
            self.gpus * _CPUS_A_GPU * 1000,
        )


@dataclass(frozen=True, slots=True)
class Need:
    """Requirements of one task on a node: an amount, a GPU model, labels, and a back end.

    `network` is the rule of its project, which that back end must be able to enforce. `python` is
    the minor version of its environment, such as `3.12`, empty if any node has it. A task in a pool
    of another scheduler runs on nodes that are `reserved_for` its placement, others do not.
    """

    amount: Amount
    gpu_model: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    backend: str = ""
    network: NetworkRule = "open"
    python: str = ""
    reserved_for: str = ""

    def matches(
        self,
        labels: Mapping[str, str],
        backends: Collection[str],
        network_backends: Collection[str],
        pythons: Collection[str] = (),
    ) -> bool:
        """Return True if a node with these labels, back ends and Pythons can run the task.

        `network_backends` are those that can enforce the network rule `platform`. A node without
        `pythons` does not report them, and may have any.
        """
        if self.python and pythons and self.python not in pythons:
            return False
        able = backends if self.network == "open" else network_backends
        if not able or (self.backend and self.backend not in able):
            return False
        return not self.labels or all(labels.get(key) == value for key, value in self.labels)


def count_noun(count: int, noun: str) -> str:
    """Format a count with its noun: `1 GPU`, `2 GPUs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def cpus_text(cpu_millis: int) -> str:
    """Format thousandths of a CPU: `1 CPU`, `0.5 CPUs`, `4 CPUs`."""
    number = f"{cpu_millis / 1000:.3f}".rstrip("0").rstrip(".")
    return f"{number} CPU" if number == "1" else f"{number} CPUs"


def memory_text(memory_bytes: int) -> str:
    """Format bytes: `512 MiB`, `3.5 GiB`."""
    if memory_bytes < GIB:
        return f"{memory_bytes // 1024**2} MiB"
    return f"{memory_bytes / GIB:.1f}".removesuffix(".0") + " GiB"


def amount_text(amount: Amount, gpu_model: str = "") -> str:
    """Format an amount: `2 CPUs, 4 GiB and 1 GPU`."""
    parts = []
    if amount.cpu_millis:
        parts.append(cpus_text(amount.cpu_millis))
    if amount.memory_bytes:
        parts.append(memory_text(amount.memory_bytes))
    if amount.gpus:
        model = f"{gpu_model} " if gpu_model else ""
        parts.append(f"{amount.gpus} {model}GPU" + ("" if amount.gpus == 1 else "s"))
    if len(parts) < 2:
        return "".join(parts) or "nothing"
    return ", ".join(parts[:-1]) + " and " + parts[-1]
