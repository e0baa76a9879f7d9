"""Train a classifier of handwritten digits (scikit-learn's 1,797 real ones) on any number of ranks.

python train.py                                        # alone
torchrun --nproc-per-node 2 train.py --strategy ddp    # two ranks with torchrun
slipway train train.py --procs 2 --strategy ddp        # two ranks on Slipway, from examples/digits

With `--register digits` a job registers the trained model as the next version of the model digits,
with golden predictions, its accuracy on the dataset, and the unseen digits as the baseline of
monitoring.

On Slipway it reads the digits from a dataset version if it is given one: see make_csv.py. After an
interruption it resumes from its last checkpoint. It saves the trained weights as model.pt next to
the checkpoints.
"""

import argparse
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import slipway
import slipway.distributed as dist
from slipway import job

Split = tuple[torch.Tensor, torch.Tensor]


def read_digits() -> tuple[Split, Split]:
    """Return the images, 64 pixels from 0 to 1, and their labels: for training and for testing."""
    if named := job.current().datasets:  # train.py --dataset digits; see make_csv.py
        file = slipway.dataset(named[0]).path / "digits.csv"
        rows = np.loadtxt(file, delimiter=",", skiprows=1)
        images, labels = rows[:, :-1], rows[:, -1]
    else:
        images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        torch.tensor(images / 16, dtype=torch.float32),
        torch.tensor(labels, dtype=torch.int64),
        test_size=0.2,
        random_state=0,
        stratify=labels,
    )
    train_x, test_x, train_y, test_y = parts
    return (train_x, train_y), (test_x, test_y)


def make_model() -> nn.Module:
    """Return the untrained classifier."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )


def accuracy(scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the share of images whose label has the highest score."""
    return (scores.argmax(1) == labels).float().mean()


def log(step: int, **metrics: float) -> None:
    """Log to the run of the job. Outside a job do nothing: the printed lines are enough."""
    if job.current().is_slipway:
        import_module("mlflow").log_metrics(metrics, step=step)


def register(name: str, weights: dict[str, Any], unseen: Split, reached: float) -> None:
    """Register the trained model with an input example, golden predictions, and its accuracy.

    The registered model returns probabilities. Monitoring estimates the quality from them until
    labels arrive.
    """
    mlflow = import_module("mlflow")
    infer_signature = import_module("mlflow.models").infer_signature
    trained = make_model()
    trained.load_state_dict(weights)
    model = nn.Sequential(trained, nn.Softmax(dim=1)).eval()
    images, labels = unseen[0].numpy(), unseen[1].numpy()
    with torch.no_grad():
        probabilities = model(unseen[0]).numpy()
    slipway.track.data(images, name="unseen digits", predictions=probabilities, truth=labels)
    inputs, outputs = images[:8], probabilities[:8]
    pins = [f"{package}=={version(package)}" for package in ("mlflow", "numpy", "torch")]
    logged = mlflow.pytorch.log_model(
        model,
        name="model",
        signature=infer_signature(inputs, outputs),
        input_example=inputs[:2],  # with one row, the exported model accepts one row only
        pip_requirements=[pin.partition("+")[0] for pin in pins],
    )
    created = slipway.register(logged, name, golden=(inputs, outputs), absolute_tolerance=1e-4)
    print(f"registered {name} version {created.version}", flush=True)
    if named := job.current().datasets:
        registered = slipway.Model(name).version(created.version)
        registered.evaluate({"accuracy": reached}, dataset=named[0])


def read_arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Classify handwritten digits.")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="total over all ranks")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--strategy", help="a strategy of docs/strategies.md, such as ddp or zero3")
    parser.add_argument("--register", metavar="MODEL", help="register the trained model (in a job)")
    return parser.parse_args()


def main() -> None:
    """Train and save the model."""
    arguments = read_arguments()
    train, test = read_digits()
    folder = job.current().checkpoint_dir or Path("checkpoints")
    with dist.prepare(
        make_model(),
        lambda parameters: torch.optim.AdamW(parameters, lr=arguments.lr),
        nn.functional.cross_entropy,
        strategy=arguments.strategy,
        checkpoints=dist.Checkpoints(folder, keep=dist.Retention(last=2, best="max")),
        timeout_s=600,  # rank 0 also logs, which may import much on a busy machine
    ) as trainer:
        if trainer.is_main:
            ranks = f"{trainer.world_size} rank{'s' if trainer.world_size > 1 else ''}"
            print(f"{ranks} by {trainer.strategy}: {trainer.reason}", flush=True)
        if started := trainer.resume():
            print(f"rank {trainer.rank} goes on after step {started}", flush=True)
        steps_per_epoch = len(train[0]) // arguments.batch_size
        for batch in trainer.shard(train, arguments.batch_size, epochs=arguments.epochs):
            loss = trainer.step(batch)
            if trainer.steps % steps_per_epoch == 0:
                reached = trainer.evaluate(test, arguments.batch_size, metric=accuracy)
                trainer.save(metric=reached)
                if trainer.is_main:
                    epoch = trainer.steps // steps_per_epoch
                    print(
                        f"epoch {epoch} step {trainer.steps} "
                        f"loss {loss.item():.4f} accuracy {reached:.4f}",
                        flush=True,
                    )
                    log(trainer.steps, loss=loss.item(), accuracy=reached)
        reached = trainer.evaluate(test, arguments.batch_size, metric=accuracy)
        weights = trainer.state_dict()
        if trainer.is_main:
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(weights, folder / "model.pt")
            print(f"accuracy on {len(test[0])} unseen digits: {reached:.4f}", flush=True)
            print(f"saved {folder / 'model.pt'}", flush=True)
            if arguments.register and job.current().is_slipway:
                register(arguments.register, weights, test, reached)


if __name__ == "__main__":
    main()
