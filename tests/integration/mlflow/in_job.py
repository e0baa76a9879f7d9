"""A script of a job that sets its own experiments and leaves its last run open.

Prints the ids of its runs as one line of JSON.
"""

import json

import mlflow


def main() -> None:
    """Log three runs: the job's own, one in another experiment, one in the background."""
    mlflow.set_experiment("first")
    with mlflow.start_run() as own:
        mlflow.log_metric("loss", 1.0)
    mlflow.set_experiment("second")
    mlflow.get_run(own.info.run_id)
    with mlflow.start_run() as other:
        mlflow.log_metric("loss", 2.0)
    mlflow.config.enable_async_logging()  # type: ignore[no-untyped-call]
    left = mlflow.start_run()
    for step in range(200):
        mlflow.log_metric("loss", step / 7, step=step)
    print(json.dumps([run.info.run_id for run in (own, other, left)]))  # noqa: T201


if __name__ == "__main__":
    main()
