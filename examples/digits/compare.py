"""Train the digits with DDP, FSDP and a parameter server, and compare the results.

python compare.py                  # on a laptop: two ranks that compute, with torchrun
python compare.py --epochs 20

Script, data, order of batches and seed are the same each time. FSDP is the strategy `zero3`. A
parameter server needs one more rank, which computes no gradients. Synchronous, it is equivalent to
data parallelism, so all three reach the same weights except for rounding in float32.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

SCRIPT = Path(__file__).resolve().parent / "train.py"
# Strategies, and the number of ranks that each needs for two workers.
STRATEGIES = {"ddp": 2, "zero3": 2, "ps=1": 3}
_ACCURACY = re.compile(r"unseen digits: ([0-9.]+)")


@dataclass(frozen=True)
class Outcome:
    """The result of a training."""

    accuracy: float
    seconds: float
    weights: dict[str, torch.Tensor]


def train(strategy: str, ranks: int, epochs: int) -> Outcome:
    """Train in a temporary folder. Prints the output and raises CalledProcessError if it fails."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={ranks}", str(SCRIPT)]
    command += [f"--strategy={strategy}", f"--epochs={epochs}"]
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        done = subprocess.run(
            command,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        took = time.perf_counter() - started
        reached = _ACCURACY.search(done.stdout)
        if done.returncode != 0 or reached is None:
            print(done.stdout, file=sys.stderr)
            raise subprocess.CalledProcessError(done.returncode, command)
        weights = torch.load(Path(folder) / "checkpoints" / "model.pt", weights_only=True)
    return Outcome(float(reached[1]), took, weights)


def difference(one: Outcome, other: Outcome) -> float:
    """Return the largest absolute difference of a weight."""
    return max(
        (weight - other.weights[name]).abs().max().item() for name, weight in one.weights.items()
    )


def main() -> None:
    """Print a table of all strategies."""
    parser = argparse.ArgumentParser(description="Compare strategies on the digits.")
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    first: Outcome | None = None
    print("strategy  ranks  accuracy  seconds  largest difference of a weight", flush=True)
    for strategy, ranks in STRATEGIES.items():
        outcome = train(strategy, ranks, arguments.epochs)
        first = first or outcome
        print(
            f"{strategy:<8}  {ranks:>5}  {outcome.accuracy:>8.4f}  {outcome.seconds:>7.1f}  "
            f"{difference(outcome, first):.1e}",
            flush=True,
        )


if __name__ == "__main__":
    main()
