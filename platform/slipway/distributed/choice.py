"""Choosing a strategy from what is known about the model and the machines, and saying why.

The rule of thumb behind it: take the strategy that sends least among those that fit into memory.
Per step and rank, for P bytes of weights over W ranks, ddp and zero2 send about 2 P (W-1)/W bytes,
zero3 half as much again (Rajbhandari et al. 2020, §7), a pipeline only activations at its cuts.
"""

from dataclasses import dataclass

# Share of device memory for weights, gradients and optimizer state. Activations need the rest.
USABLE_SHARE = 0.7
# The compute time of a step is not known in advance. If a link is slower than this (40 Gbit/s) and
# exchanging gradients takes longer than a second, most models wait for the exchange.
SLOW_LINK_BYTES_PER_S = 5e9
SLOW_EXCHANGE_S = 1.0
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties of a job before its first step. Sizes in bytes, times in seconds.

    `block_bytes` is the size of the weights of the largest repeated block. `bandwidth` is what one
    rank can send per second. `stages` is the largest number of consecutive stages with weights into
    which the model can be cut. `tensor_size` is the number of ranks of one machine over which its
    layers can be split (1: not at all). `compute_s` is the computing time of one step, where known.
    """

    world_size: int
    ranks_per_machine: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    block_bytes: int
    device_memory_bytes: int
    host_memory_bytes: int
    bandwidth: float
    stages: int = 1
    tensor_size: int = 1
    compute_s: float | None = None

    @property
    def state_bytes(self) -> int:
        """Weights, gradients and optimizer state together."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def usable_bytes(self) -> float:
        """Usable part of a device's memory."""
        return USABLE_SHARE * self.device_memory_bytes

    @property
    def exchange_s(self) -> float:
        """Time to average the gradients of one step."""
        share = (self.world_size - 1) / self.world_size
        return 2 * share * self.gradient_bytes / self.bandwidth if self.world_size > 1 else 0.0

    def is_slow(self, exchange_s: float) -> bool:
        """Return whether a step with this exchange time is bound by communication."""
        if self.compute_s is None:
            return exchange_s > SLOW_EXCHANGE_S and self.bandwidth < SLOW_LINK_BYTES_PER_S
        return exchange_s > 2 * self.compute_s


@dataclass(frozen=True, slots=True)
class Choice:
    """A strategy word, and a sentence that says why."""

    word: str
    reason: str


def choose_strategy(details: Facts) -> Choice:
    """Return the strategy that sends least among those that fit."""
    if details.world_size == 1:
        return _single_rank(details)
    return _replicated(details) or _sharded(details) or _divided(details) or _offloaded(details)


def _single_rank(details: Facts) -> Choice:
    if details.state_bytes <= details.usable_bytes:
        return Choice("ddp", f"there is one rank, and {_state_size(details)} fit on its device.")
    return Choice(
        "zero3+offload",
        f"there is one rank, and {_state_size(details)} do not fit on its device, which has "
        f"room for {_size(details.usable_bytes)}: weights rest in the memory of the host.",
    )


def _replicated(details: Facts) -> Choice | None:
    """Every rank keeps the weights: ddp, or zero2 when only the rest must be divided."""
    world = details.world_size
    slow = details.is_slow(details.exchange_s)
    pipeline = _pipeline_that_fits(details) if slow else None
    if details.state_bytes <= details.usable_bytes:
        if pipeline is not None:
            return pipeline
        bound = (
            f"; averaging gradients takes {details.exchange_s:.2g} s a step on this network, so "
            "use large batches"
            if slow
            else ""
        )
        return Choice("ddp", f"{_state_size(details)} fit on every device{bound}.")
    divided = details.parameter_bytes + details.state_bytes / world + details.block_bytes
    if divided <= details.usable_bytes:
        return pipeline or Choice(
            "zero2",
            f"{_state_size(details)} do not fit on a device with room for "
            f"{_size(details.usable_bytes)}, "
            f"but do with gradients and optimizer state divided over {world} ranks "
            f"({_size(divided)}); this sends no more than ddp.",
        )
    return None


def _sharded(details: Facts) -> Choice | None:
    """Weights are divided too and gathered block by block."""
    per_machine = details.ranks_per_machine
    machines = details.world_size // per_machine
    slow = details.is_slow(1.5 * details.exchange_s)
    held = details.state_bytes / details.world_size + 3 * details.block_bytes
    if held > details.usable_bytes:
        return None
    held_within = details.state_bytes / per_machine + 3 * details.block_bytes
    if machines > 1 and slow and per_machine > 1 and held_within <= details.usable_bytes:
        return Choice(
            f"ddp={machines}*zero3={per_machine}",
            f"{_state_size(details)} fit divided over the {per_machine} ranks of one machine, "
            "and the network between machines is slow: weights are gathered within a machine, only "
            "gradients travel between them.",
        )
    if slow and (pipeline := _pipeline_that_fits(details)) is not None:
        return pipeline
    return Choice(
        "zero3",
        f"{_state_size(details)} fit only divided over all {details.world_size} ranks "
        f"({_size(held)} each, with room for one block at a time).",
    )


def _divided(details: Facts) -> Choice | None:
    """One block alone is too large for a device: split its layers within a machine."""
    size = min(details.tensor_size, details.ranks_per_machine)
    if size < 2 or details.world_size % size:
        return None
    held = details.state_bytes / details.world_size + 3 * details.block_bytes / size
    if held > details.usable_bytes:
        return None
    rest = details.world_size // size
    return Choice(
        f"zero3={rest}*tensor={size}" if rest > 1 else f"tensor={size}",
        f"the largest block has {_size(details.block_bytes)} of weights, too much to gather on one "
        f"device: its layers are split over {size} ranks of a machine.",
    )


def _offloaded(details: Facts) -> Choice:
    share = details.state_bytes / details.world_size
    if share <= details.host_memory_bytes:
        return Choice(
            "zero3+offload",
            f"{_state_size(details)} do not fit on {details.world_size} devices with room for "
            f"{_size(details.usable_bytes)} each: they rest in the memory of the hosts, "
            f"{_size(share)} a rank, and travel to the device block by block (slow).",
        )
    return Choice(
        "zero3+offload",
        f"{_state_size(details)} fit neither on {details.world_size} devices nor in the memory of "
        f"their hosts ({_size(details.host_memory_bytes)} a rank): this is the thriftiest "
        "strategy, but expect to run out of memory; start more ranks.",
    )


def _pipeline_that_fits(details: Facts) -> Choice | None:
    """On a slow network: a pipeline, if it can be cut so often and its stages fit."""
    world = details.world_size
    if details.stages < world or details.state_bytes / world > details.usable_bytes:
        return None
    return Choice(
        f"pipeline={world}",
        f"averaging {_size(details.gradient_bytes)} of gradients takes "
        f"{details.exchange_s:.2g} s a "
        "step on this network, longer than computing; a pipeline sends only activations between "
        f"neighbours, and the model can be cut into {world} stages.",
    )


def _state_size(details: Facts) -> str:
    return f"{_size(details.state_bytes)} of weights, gradients and optimizer state"


def _size(count: float) -> str:
    if count >= _GIB:
        return f"{count / _GIB:.1f} GiB"
    return f"{count / 2**20:.1f} MiB"
