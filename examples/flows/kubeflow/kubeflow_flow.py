"""Train a classifier of wines with Kubeflow Pipelines: the flow before it moved to Slipway."""

from kfp import compiler, dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

PACKAGES = ["pandas", "scikit-learn"]


@dsl.component(base_image="python:3.11", packages_to_install=PACKAGES)
def load_wines(wines: Output[Dataset]):
    from sklearn.datasets import load_wine

    load_wine(as_frame=True).frame.to_csv(wines.path, index=False)


@dsl.component(base_image="python:3.11", packages_to_install=PACKAGES)
def fit_forest(
    wines: Input[Dataset], trees: int, model: Output[Model], metrics: Output[Metrics]
) -> float:
    import pickle

    import pandas as pd
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import train_test_split

    table = pd.read_csv(wines.path)
    train, test = train_test_split(table, test_size=0.25, random_state=0)
    forest = RandomForestClassifier(trees, random_state=0)
    forest.fit(train.drop(columns="target"), train["target"])
    accuracy = float(forest.score(test.drop(columns="target"), test["target"]))
    metrics.log_metric("accuracy", accuracy)
    with open(model.path, "wb") as file:
        pickle.dump(forest, file)
    return accuracy


@dsl.component(base_image="python:3.11")
def report(accuracy: float) -> str:
    return f"good enough: {accuracy:.3f}"


@dsl.pipeline(name="wine")
def wine(trees: int = 50, goal: float = 0.9):
    loaded = load_wines()
    fitted = fit_forest(wines=loaded.outputs["wines"], trees=trees)
    fitted.set_retry(num_retries=2)
    with dsl.If(fitted.outputs["Output"] >= goal):
        report(accuracy=fitted.outputs["Output"])


if __name__ == "__main__":
    compiler.Compiler().compile(wine, "wine.yaml")
