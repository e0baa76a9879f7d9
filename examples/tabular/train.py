"""Predict how far diabetes progresses within a year, from ten measurements of a patient.

python train.py                                   # on a laptop: writes model.joblib
slipway train train.py --watch                    # on Slipway, from examples/tabular
slipway train train.py --param register=diabetes  # and registers the trained model

The data of 442 patients is part of scikit-learn. Without Slipway the script needs only scikit-learn
and pandas.
"""

import argparse
import os
from importlib import import_module
from importlib.metadata import version
from typing import Any

import joblib
import pandas as pd
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.metrics import mean_absolute_error
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

GOLDEN_PATIENTS = 5
Patients = tuple[pd.DataFrame, pd.Series]


def read_patients() -> tuple[Patients, Patients]:
    """Return measurements and progression a year later: a training set, and 100 later patients.

    The index is the number of the patient.
    """
    table, progression = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    parts = train_test_split(table, progression, test_size=100, random_state=0)
    return (parts[0], parts[2]), (parts[1], parts[3])


def register(model: Any, name: str, train: Patients) -> None:
    """Register the model with its training data, the baseline of monitoring."""
    mlflow, slipway = import_module("mlflow"), import_module("slipway")
    infer_signature: Any = import_module("mlflow.models").infer_signature
    table, progression = train
    fitted = model.predict(table)
    slipway.track.data(table, name="diabetes", predictions=fitted, truth=progression)
    packages = ("mlflow", "pandas", "scikit-learn")
    logged = mlflow.sklearn.log_model(
        model,
        name="model",
        signature=infer_signature(table, fitted),
        input_example=table[:2],
        pip_requirements=[f"{package}=={version(package)}" for package in packages],
    )
    golden = (table[:GOLDEN_PATIENTS], fitted[:GOLDEN_PATIENTS])
    registered = slipway.register(logged, name, golden=golden, relative_tolerance=1e-6)
    print(f"registered {name} version {registered.version}", flush=True)


def main() -> None:
    """Train, test and save."""
    parser = argparse.ArgumentParser(description="Predict the progression of diabetes.")
    parser.add_argument("--out", default="model.joblib", help="the file of the trained model")
    parser.add_argument("--register", metavar="MODEL", help="register the trained model in Slipway")
    arguments = parser.parse_args()
    train, later = read_patients()
    model = make_pipeline(StandardScaler(), RidgeCV([0.1, 1.0, 10.0, 100.0]))
    model.fit(*train)
    error = mean_absolute_error(later[1], model.predict(later[0]))
    always = mean_absolute_error(later[1], [train[1].mean()] * len(later[1]))
    print(
        f"mean error for {len(later[1])} later patients: {error:.1f} "
        f"(always the mean: {always:.1f})"
    )
    if "SLIPWAY_WORKLOAD" in os.environ:
        import_module("mlflow").log_metrics({"mean_error": error, "mean_error_of_mean": always})
    joblib.dump(model, arguments.out)
    print(f"saved {arguments.out}", flush=True)
    if arguments.register:
        register(model, arguments.register, train)


if __name__ == "__main__":
    main()
