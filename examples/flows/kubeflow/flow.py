"""Train a classifier of wines: a flow of Kubeflow Pipelines that moved to Slipway."""

from pathlib import Path
from typing import NamedTuple

import slipway


class Fitted(NamedTuple):
    model: Path
    accuracy: float


@slipway.step
def load_wines() -> Path:
    from sklearn.datasets import load_wine

    load_wine(as_frame=True).frame.to_csv("wines.csv", index=False)
    return Path("wines.csv")


@slipway.step(retries=2)
def fit_forest(wines: Path, trees: int) -> Fitted:
    import pickle

    import pandas as pd
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split

    table = pd.read_csv(wines)
    train, test = train_test_split(table, test_size=0.25, random_state=0)
    forest = RandomForestClassifier(trees, random_state=0)
    forest.fit(train.drop(columns="target"), train["target"])
    accuracy = float(forest.score(test.drop(columns="target"), test["target"]))
    with open("model.pickle", "wb") as file:
        pickle.dump(forest, file)
    return Fitted(Path("model.pickle"), accuracy)


@slipway.step
def report(accuracy: float) -> str:
    return f"good enough: {accuracy:.3f}"


@slipway.pipeline(name="wine")
def wine(trees: int = 50, goal: float = 0.9):
    fitted = fit_forest(load_wines(), trees)
    report.options(when=fitted.accuracy >= goal)(fitted.accuracy)
