"""The search of `bench/searches.py` by Optuna alone: two processes and a study in a file.

Prints a line `EPOCH time epochs accuracy` for each epoch, and the time of the start before.
"""

import multiprocessing
import sys
import time
from pathlib import Path

import optuna
from digits_epochs import CONFIGURATIONS, EPOCHS, ETA, SLOTS, Training
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

LOG = Path(sys.argv[1])
SPACE = {"configuration": list(range(CONFIGURATIONS))}


def trial(values: optuna.Trial) -> float:
    """Train one configuration, or a part of it."""
    training = Training(int(values.suggest_categorical("configuration", SPACE["configuration"])))
    accuracy = 0.0
    while training.epochs < EPOCHS:
        accuracy = training.epoch()
        with LOG.open("a") as file:
            file.write(f"EPOCH {time.time()} {training.epochs} {accuracy}\n")
        values.report(accuracy, training.epochs)
        if values.should_prune():
            raise optuna.TrialPruned
    return accuracy


def study() -> optuna.Study:
    """Open the study, which both processes share."""
    return optuna.create_study(
        study_name="digits",
        storage=JournalStorage(JournalFileBackend(str(LOG.with_suffix(".study")))),
        direction="maximize",
        sampler=optuna.samplers.GridSampler(SPACE, seed=0),
        pruner=optuna.pruners.SuccessiveHalvingPruner(reduction_factor=ETA),
        load_if_exists=True,
    )


def work() -> None:
    """Try configurations until all are tried."""
    study().optimize(trial)


def main() -> None:
    """Search in two processes."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study()
    LOG.write_text(f"START {time.time()}\n")
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=work) for _ in range(SLOTS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with LOG.open("a") as file:
        file.write(f"END {time.time()}\n")


if __name__ == "__main__":
    main()
