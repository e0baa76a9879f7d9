"""Predict for new patients, and report the true values a year later.

python follow_up.py predict                                           # by model.joblib
KEY=… python follow_up.py predict http://localhost:8002/v1/diabetes   # by an endpoint
python follow_up.py label                                             # a year later

`predict` writes predictions.csv. `label` writes labels.csv, the input of `slipway endpoint
monitoring label`, and compares the two files. Each request carries an id of your own for the
patient, so that you can send labels without knowing the ids of predictions.
"""

import argparse
import csv
import json
import os
import urllib.request
from collections.abc import Callable
from pathlib import Path

import joblib
import pandas as pd

from train import read_patients

Predict = Callable[[str, pd.DataFrame], float]
PREDICTIONS, LABELS = Path("predictions.csv"), Path("labels.csv")


def own_id(number: object) -> str:
    """Return the id of a patient in requests and labels."""
    return f"patient-{number}"


def by_endpoint(url: str, key: str) -> Predict:
    """Return a function that requests the prediction for one patient from an endpoint."""

    def predict(name: str, row: pd.DataFrame) -> float:
        body = {"dataframe_records": row.to_dict("records"), "client_request_id": name}
        request = urllib.request.Request(  # noqa: S310  (the user's own URL)
            f"{url.rstrip('/')}/predict",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            return float(json.load(response)["predictions"][0])

    return predict


def by_file(file: str) -> Predict:
    """Return a function that predicts with the saved model. Load only files that you trust."""
    model = joblib.load(file)
    return lambda _, row: float(model.predict(row)[0])


def write(file: Path, values: dict[str, float]) -> None:
    """Write a value for each patient."""
    with file.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.writer(opened)
        writer.writerow(["own_id", "value"])
        writer.writerows(values.items())
    print(f"wrote {len(values)} lines of {file}")


def read(file: Path) -> dict[str, float]:
    """Read a file that `write` wrote."""
    with file.open(newline="", encoding="utf-8") as opened:
        return {line["own_id"]: float(line["value"]) for line in csv.DictReader(opened)}


def main() -> None:
    """Predict, or label."""
    parser = argparse.ArgumentParser(description="Predict, and send labels later.")
    parser.add_argument("what", choices=["predict", "label"])
    parser.add_argument("url", nargs="?", help="URL of an endpoint, whose key is in KEY")
    parser.add_argument("--model", default="model.joblib")
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of the labels that are known so far"
    )
    arguments = parser.parse_args()
    table, progression = read_patients()[1]
    if arguments.what == "predict":
        url = arguments.url
        predict = by_endpoint(url, os.environ["KEY"]) if url else by_file(arguments.model)
        rows = {own_id(number): table.loc[[number]] for number in table.index}
        write(PREDICTIONS, {name: predict(name, row) for name, row in rows.items()})
        return
    known = progression[: round(len(progression) * arguments.share)]
    labels = {own_id(number): float(value) for number, value in known.items()}
    write(LABELS, labels)
    predicted = read(PREDICTIONS)
    errors = [abs(predicted[name] - value) for name, value in labels.items()]
    print(f"mean error of {len(errors)} labelled predictions: {sum(errors) / len(errors):.1f}")


if __name__ == "__main__":
    main()
