"""A trial of `bench/searches.py` on Slipway: saves after each epoch and goes on from there."""

import argparse
import pickle
import time

import mlflow
from digits_epochs import EPOCHS, Training

from slipway import job


def main() -> None:
    """Train one configuration."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--configuration", type=int)
    number = parser.parse_args().configuration
    folder = job.current().checkpoint_dir
    assert folder is not None
    folder.mkdir(parents=True, exist_ok=True)
    saved = folder / "training.pickle"
    training = Training(number)
    if saved.exists():
        training = pickle.loads(saved.read_bytes())  # noqa: S301  (it is the trial's own)
    while training.epochs < EPOCHS:
        accuracy = training.epoch()
        print(f"EPOCH {time.time()} {training.epochs} {accuracy}", flush=True)
        mlflow.log_metric("accuracy", accuracy, step=training.epochs)
        part = saved.with_suffix(".part")
        part.write_bytes(pickle.dumps(training))
        part.replace(saved)


main()
