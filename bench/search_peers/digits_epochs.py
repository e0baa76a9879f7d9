"""The search that `bench/searches.py` gives to every side: 27 classifiers of digits.

A configuration is a number, from which its learning rate and width follow, so that all sides try
the same ones. An epoch is PASSES passes over the data, about a third of a second on a slow core.
Needs NumPy and scikit-learn alone.
"""

import random
from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

CONFIGURATIONS, EPOCHS, ETA, SLOTS = 27, 27, 3, 2
PASSES = 4


@dataclass(frozen=True)
class Configuration:
    """Learning rate and number of hidden units."""

    lr: float
    hidden: int


def configuration(number: int) -> Configuration:
    """Return a configuration by its number."""
    chance = random.Random(number)  # noqa: S311  (no secret)
    return Configuration(10 ** chance.uniform(-5, -1), chance.choice([4, 8, 16, 32, 64]))


class Training:
    """One classifier, trained epoch by epoch; it can be pickled in between."""

    def __init__(self, number: int) -> None:
        chosen = configuration(number)
        self.model = MLPClassifier(
            (chosen.hidden,), learning_rate_init=chosen.lr, batch_size=64, random_state=number
        )
        self.epochs = 0

    def epoch(self) -> float:
        """Train for one epoch. Returns the accuracy on unseen digits."""
        images, labels = load_digits(return_X_y=True)
        train_x, test_x, train_y, test_y = train_test_split(
            images / 16, labels, test_size=0.3, random_state=0, stratify=labels
        )
        for _ in range(PASSES):
            self.model.partial_fit(train_x, train_y, classes=np.arange(10))
        self.epochs += 1
        return float(self.model.score(test_x, test_y))
