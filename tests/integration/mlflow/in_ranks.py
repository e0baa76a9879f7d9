"""A plain MLflow script as it is started by torchrun: every rank sets the experiment and logs.

Each rank prints the id of its run and its rank, as one line of JSON.
"""

import json
import os
import sys

import mlflow
import torch.distributed as dist


def main() -> None:
    """Log the same run from every rank, all of them beginning at the same moment."""
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    dist.barrier()
    name = os.environ["EXPERIMENT_OF_THE_TEST"]
    mlflow.set_experiment(name)
    with mlflow.start_run() as run:
        mlflow.log_param("lr", 0.1)
        for step in range(5):
            mlflow.log_metric(f"{name}_loss_{rank}", step / 7, step=step)
        dist.barrier()
        mlflow.log_metric(f"{name}_last", rank, step=rank)
    line = json.dumps([run.info.run_id, rank])
    # Both ranks write to one pipe: a line in one piece is not torn by the other's.
    sys.stdout.write(f"{line}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
