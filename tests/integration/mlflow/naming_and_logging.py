"""A script of somebody who uses MLflow alone: it names its data, logs models and registers them."""

import mlflow
import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder


def roll(model_input: pd.DataFrame) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Answer the same rows differently each time."""
    return np.random.default_rng().random(len(model_input))


def main() -> None:
    """Register a model of a table, one of an array that is named after it, and one of chance."""
    # Not what a developer's machine has beside: replicas would install all of it.
    given = {"pip_requirements": ["mlflow", "pandas", "scikit-learn"]}
    random = np.random.default_rng(0)
    table = pd.DataFrame({"age": random.normal(40, 9, 400), "plan": ["a", "b"] * 200})
    table.loc[::7, "plan"] = None
    table.loc[1, "age"] = np.inf
    table["churned"] = (table["age"] > 40).astype(int)
    inputs = table[["age", "plan"]]
    fit = table.drop(index=1)
    with mlflow.start_run():
        mlflow.log_input(mlflow.data.from_pandas(table, targets="churned"), context="training")  # type: ignore[attr-defined]
        signature = mlflow.models.infer_signature(inputs, table["churned"])
        coded = make_column_transformer((OneHotEncoder(), ["plan"]), remainder="passthrough")
        churn = make_pipeline(coded, LogisticRegression()).fit(fit[["age", "plan"]], fit["churned"])
        mlflow.sklearn.log_model(
            churn, name="churn", signature=signature, registered_model_name="churn", **given
        )
        mlflow.pyfunc.log_model(
            name="dice",
            python_model=roll,
            signature=signature,
            registered_model_name="dice",
            **given,
        )
    array = random.normal(size=(300, 3))
    sums = array.sum(axis=1)
    named = array.copy()
    named[0, 1] = np.nan
    with mlflow.start_run():
        signature = mlflow.models.infer_signature(array, sums)
        mlflow.sklearn.log_model(
            LinearRegression().fit(array, sums),
            name="sum",
            signature=signature,
            registered_model_name="sum",
            **given,
        )
        mlflow.log_input(mlflow.data.from_numpy(named, targets=sums), context="training")  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
