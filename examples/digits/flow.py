"""Split the digits, train classifiers of neighbours beside each other, and choose the best.

slipway pipeline run flow.py --watch    # from examples/digits; again, and nothing runs twice

Called as a function, `digits()` runs its steps in your own process. The steps import what they need
themselves, because whoever starts a run reads this file, too, and may have no scikit-learn.
"""
# ruff: noqa: PLC0415

import pickle
from pathlib import Path
from typing import NamedTuple

import slipway


class Parts(NamedTuple):
    """Files of images and labels."""

    train: Path
    test: Path


class Trained(NamedTuple):
    """A classifier, and the share of unseen digits that it reads correctly."""

    model: Path
    accuracy: float


@slipway.step
def split(test_share: float) -> Parts:
    """Write the digits into two files."""
    import numpy as np
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images / 16, labels, test_size=test_share, random_state=0, stratify=labels
    )
    np.savez("train.npz", images=train_x, labels=train_y)
    np.savez("test.npz", images=test_x, labels=test_y)
    return Parts(Path("train.npz"), Path("test.npz"))


@slipway.step(retries=1)
def train(data: Path, test: Path, neighbours: int) -> Trained:
    """Fit a classifier and test it."""
    import numpy as np
    from sklearn.neighbors import KNeighborsClassifier

    with np.load(data) as known, np.load(test) as unseen:
        model = KNeighborsClassifier(neighbours).fit(known["images"], known["labels"])
        accuracy = float(model.score(unseen["images"], unseen["labels"]))
    Path("model.pickle").write_bytes(pickle.dumps(model))
    return Trained(Path("model.pickle"), accuracy)


@slipway.step
def choose(neighbours: list[int], accuracies: list[float]) -> dict[str, float]:
    """Return the best number of neighbours with its accuracy."""
    accuracy, best = max(zip(accuracies, neighbours, strict=True))
    print(f"{best} neighbours: accuracy {accuracy:.4f}", flush=True)
    return {"neighbours": best, "accuracy": accuracy}


@slipway.pipeline
def digits(test_share: float = 0.2, neighbours: list[int] = [1, 3]) -> None:  # noqa: B006 (a step has no way to change it)
    """Find out how many neighbours to ask."""
    parts = split(test_share)
    trained = train.map(neighbours=neighbours)(parts.train, parts.test)
    choose(neighbours, trained.accuracy)
