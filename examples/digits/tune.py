"""Train one small classifier of handwritten digits, with parameters that a sweep searches.

python tune.py --lr 0.01 --hidden 32        # alone
slipway sweep sweep.yaml --dataset digits   # eight trials on Slipway, from examples/digits

Saves the classifier after each epoch, so a trial that was stopped early goes on from there.
"""

import argparse
import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import slipway
from slipway import job

Array = npt.NDArray[Any]


def read_digits() -> list[Array]:
    """Return images (rows of 64 pixels from 0 to 1) and labels: train, test, train, test."""
    if named := job.current().datasets:
        file = slipway.dataset(named[0]).path / "digits.csv"
        rows = np.loadtxt(file, delimiter=",", skiprows=1)
        images, labels = rows[:, :-1], rows[:, -1].astype(int)
    else:
        images, labels = load_digits(return_X_y=True)
    parts: list[Array] = train_test_split(
        images / 16, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return parts


def load(saved: Path | None, lr: float, hidden: int) -> tuple[Any, int]:
    """Return a classifier and the epochs that it has been trained for."""
    if saved is not None and saved.exists():
        model, epochs = pickle.loads(saved.read_bytes())  # noqa: S301 (it is the job's own)
        return model, int(epochs)
    return MLPClassifier((hidden,), learning_rate_init=lr, batch_size=64), 0


def save(saved: Path, model: Any, epochs: int) -> None:
    """Replace the saved classifier as a whole, because a job can be stopped at any time."""
    saved.parent.mkdir(parents=True, exist_ok=True)
    part = saved.with_suffix(".part")
    part.write_bytes(pickle.dumps((model, epochs)))
    part.replace(saved)


def main() -> None:
    """Train to the last epoch, and log the accuracy after each."""
    parser = argparse.ArgumentParser(description="Train one small classifier of digits.")
    parser.add_argument("--lr", type=float, default=0.001)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=9)
    arguments = parser.parse_args()
    train_x, test_x, train_y, test_y = read_digits()
    checkpoints = job.current().checkpoint_dir
    saved = checkpoints / "model.pickle" if checkpoints else None
    model, done = load(saved, arguments.lr, arguments.hidden)
    for epoch in range(done + 1, arguments.epochs + 1):
        model.partial_fit(train_x, train_y, classes=np.arange(10))
        accuracy = float(model.score(test_x, test_y))
        print(f"epoch {epoch}: accuracy {accuracy:.4f}", flush=True)
        if saved is not None:
            import_module("mlflow").log_metric("accuracy", accuracy, step=epoch)
            save(saved, model, epoch)


if __name__ == "__main__":
    main()
