"""Train small classifiers of handwritten digits with other parameters, each as a run of its own.

python search.py --epochs 2                 # alone: prints what each reached
slipway train search.py --dataset digits    # on Slipway, from examples/digits

On Slipway each run has its parameters, its curves, a confusion matrix, the digits it gets wrong (as
images by epoch and as a table), and the run of the job as its parent.
"""

import argparse
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix, log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

import slipway
from slipway import job

Array = npt.NDArray[Any]
RATES = (0.001, 0.003, 0.01)
SIZES = (16, 64)
BATCH_SIZE = 64
SHOWN = 16  # images of wrong digits in one picture, in rows of four
SCALE = 12  # pixels on a side for each pixel of a digit
IMAGE_EVERY = 3  # epochs


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


class PrintedRun:
    """A run outside of a job: nothing is logged."""

    def metrics(self, epoch: int, **values: float) -> None:
        """Log nothing."""

    def errors(self, epoch: int, images: Array) -> None:
        """Log nothing."""

    def result(self, labels: Array, predicted: Array) -> None:
        """Log nothing."""


class LoggedRun(PrintedRun):
    """A run that MLflow logs."""

    def __init__(self, mlflow: Any) -> None:
        self._mlflow = mlflow

    def metrics(self, epoch: int, **values: float) -> None:
        """Log metrics of an epoch."""
        self._mlflow.log_metrics(values, step=epoch)

    def errors(self, epoch: int, images: Array) -> None:
        """Log the first wrong digits as one picture."""
        self._mlflow.log_image(picture_of(images), key="wrong digits", step=epoch)

    def result(self, labels: Array, predicted: Array) -> None:
        """Log the confusion matrix, and the wrong digits as a table."""
        matrix = confusion_matrix(labels, predicted).tolist()
        names = [str(digit) for digit in range(10)]
        chart = {"type": "confusion_matrix", "labels": names, "matrix": matrix}
        self._mlflow.log_dict(chart, "charts/confusion.json")
        (wrong,) = np.nonzero(labels != predicted)
        table = {
            "row": wrong.tolist(),
            "digit": labels[wrong].tolist(),
            "predicted": predicted[wrong].tolist(),
        }
        self._mlflow.log_table(table, "wrong_digits.json")


@contextmanager
def start_run(name: str, params: dict[str, object]) -> Iterator[PrintedRun]:
    """Start a run below the run of the job."""
    if not job.current().is_slipway:
        yield PrintedRun()
        return
    mlflow = import_module("mlflow")
    with mlflow.start_run(run_name=name, nested=True):
        mlflow.log_params(params)
        yield LoggedRun(mlflow)


def picture_of(images: Array) -> Array:
    """Return up to 16 images (rows of 64 pixels) in rows of four, as bytes (H, W)."""
    empty = np.zeros((SHOWN - len(images[:SHOWN]), 64))
    tiles = np.concatenate([images[:SHOWN], empty]).reshape(4, 4, 8, 8)
    framed = np.pad(tiles, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=0.25)
    grid = framed.transpose(0, 2, 1, 3).reshape(40, 40)
    return (np.kron(grid, np.ones((SCALE, SCALE))) * 255).astype(np.uint8)


def train(rate: float, size: int, epochs: int, parts: list[Array]) -> float:
    """Train one classifier. Returns its accuracy on unseen digits, from 0 to 1."""
    train_x, test_x, train_y, test_y = parts
    classes = np.arange(10)
    model = MLPClassifier((size,), learning_rate_init=rate, batch_size=BATCH_SIZE, random_state=0)
    params: dict[str, object] = {"lr": rate, "hidden": size, "epochs": epochs, "batch": BATCH_SIZE}
    with start_run(f"lr {rate:g}, {size} hidden", params) as run:
        for epoch in range(1, epochs + 1):
            model.partial_fit(train_x, train_y, classes=classes)
            predicted = model.predict(test_x)
            accuracy = float((predicted == test_y).mean())
            loss = float(log_loss(test_y, model.predict_proba(test_x), labels=classes))
            run.metrics(epoch, accuracy=accuracy, loss=loss, train_loss=float(model.loss_))
            if epoch % IMAGE_EVERY == 0:
                run.errors(epoch, test_x[predicted != test_y])
        run.result(test_y, predicted)
    print(f"lr {rate:g}, {size} hidden: accuracy {accuracy:.4f}", flush=True)
    return accuracy


def main() -> None:
    """Train one classifier for each combination of parameters."""
    parser = argparse.ArgumentParser(description="Compare parameters of small classifiers.")
    parser.add_argument("--epochs", type=int, default=9)
    arguments = parser.parse_args()
    parts = read_digits()
    if job.current().is_slipway:
        import_module("mlflow").start_run()
    best = max(
        train(rate, size, arguments.epochs, parts) for rate, size in itertools.product(RATES, SIZES)
    )
    print(f"accuracy on {len(parts[1])} unseen digits: {best:.4f} at best", flush=True)
    if job.current().is_slipway:
        import_module("mlflow").log_metric("accuracy", best)


if __name__ == "__main__":
    main()
