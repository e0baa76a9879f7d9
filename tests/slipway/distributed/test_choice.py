"""What `auto` chooses, and that it says why: a table of jobs."""

import dataclasses

import pytest

from slipway.distributed import Facts, choose_strategy
from slipway.schemas.strategy import parse_strategy

pytestmark = pytest.mark.ranks

GIB = 2**30
# Eight GPUs of 80 GiB in one machine with fast links; a model whose state is four times its size
# (AdamW in one precision).
BASE = Facts(
    world_size=8,
    ranks_per_machine=8,
    parameter_bytes=2 * GIB,
    gradient_bytes=2 * GIB,
    optimizer_bytes=4 * GIB,
    block_bytes=GIB // 16,
    device_memory_bytes=80 * GIB,
    host_memory_bytes=128 * GIB,
    bandwidth=100e9,
    stages=32,
    tensor_size=8,
)


def _sized(gib: float, **changes: object) -> dict[str, object]:
    """A model of so many GiB of weights, a thirty-second of it in a block."""
    size = int(gib * GIB)
    sizes = {"parameter_bytes": size, "gradient_bytes": size, "optimizer_bytes": 2 * size}
    return sizes | {"block_bytes": size // 32} | changes


CASES = [
    ("a small model", {}, "ddp", "fit on every device"),
    ("one rank", {"world_size": 1, "ranks_per_machine": 1}, "ddp", "one rank"),
    (
        "one rank, too large",
        _sized(30, world_size=1, ranks_per_machine=1),
        "zero3+offload",
        "memory of the host",
    ),
    ("optimizer state too large", _sized(18), "zero2", "no more than ddp"),
    ("weights too large", _sized(60), "zero3", "only divided over all 8 ranks"),
    ("the largest block too large", _sized(60, block_bytes=20 * GIB), "tensor=8", "largest block"),
    (
        "the largest block too large, two machines",
        _sized(60, block_bytes=20 * GIB, world_size=16, tensor_size=8),
        "zero3=2*tensor=8",
        "split over 8 ranks of a machine",
    ),
    (
        "two machines on a slow network",
        _sized(60, world_size=16, bandwidth=1e9),
        "ddp=2*zero3=8",
        "only gradients travel",
    ),
    (
        "a small model on a very slow network",
        {"bandwidth": 50e6},
        "pipeline=8",
        "sends only activations",
    ),
    (
        "the same, but it cannot be cut",
        {"bandwidth": 50e6, "stages": 3},
        "ddp",
        "use large batches",
    ),
    (
        "the same, but a step computes longer than it sends",
        {"bandwidth": 50e6, "compute_s": 600.0},
        "ddp",
        "fit on every device",
    ),
    ("larger than all devices", _sized(200), "zero3+offload", "memory of the hosts"),
    ("larger than everything", _sized(2000), "zero3+offload", "start more ranks"),
    (
        "no tensor parallelism possible",
        _sized(60, block_bytes=20 * GIB, tensor_size=1),
        "zero3+offload",
        "do not fit on 8 devices",
    ),
]


@pytest.mark.parametrize(
    ("changes", "word", "why"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_auto_takes_what_sends_least_among_what_fits(
    changes: dict[str, object], word: str, why: str
) -> None:
    inputs = dataclasses.replace(BASE, **changes)  # type: ignore[arg-type]
    choice = choose_strategy(inputs)
    assert choice.word == word
    assert why in choice.reason
    parse_strategy(choice.word).layout(inputs.world_size)
