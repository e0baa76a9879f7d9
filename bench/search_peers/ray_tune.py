"""The search of `bench/searches.py` by Ray Tune with ASHA, in two slots.

Prints a line `EPOCH time epochs accuracy` for each epoch, and the time of the start before.
"""

import os
import sys
import time
from pathlib import Path

import ray
from digits_epochs import CONFIGURATIONS, EPOCHS, ETA, SLOTS, Training
from ray import tune
from ray.tune.schedulers import ASHAScheduler

LOG = Path(sys.argv[1])


def trial(values: dict[str, int]) -> None:
    """Train one configuration."""
    training = Training(values["configuration"])
    while training.epochs < EPOCHS:
        accuracy = training.epoch()
        with LOG.open("a") as file:
            file.write(f"EPOCH {time.time()} {training.epochs} {accuracy}\n")
        tune.report({"accuracy": accuracy})


def main() -> None:
    """Search, once the cluster runs."""
    paths = {"env_vars": {"PYTHONPATH": str(Path(__file__).parent), "OMP_NUM_THREADS": "1"}}
    ray.init(num_cpus=SLOTS, include_dashboard=False, runtime_env=paths, log_to_driver=False)
    LOG.write_text(f"START {time.time()}\n")
    asha = ASHAScheduler(max_t=EPOCHS, grace_period=1, reduction_factor=ETA)
    tuner = tune.Tuner(
        trial,
        param_space={"configuration": tune.grid_search(list(range(CONFIGURATIONS)))},
        tune_config=tune.TuneConfig(
            metric="accuracy", mode="max", scheduler=asha, max_concurrent_trials=SLOTS
        ),
        run_config=tune.RunConfig(storage_path=os.environ["TMPDIR"], verbose=0),
    )
    results = tuner.fit()
    with LOG.open("a") as file:
        file.write(f"END {time.time()}\n")
    assert not results.errors, results.errors
    ray.shutdown()


main()
