from pathlib import Path

import mlflow
import pandas as pd
import ray
import torch
from ray import train, tune
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from sklearn.datasets import load_diabetes
from torch import nn

RESULTS = str(Path("ray_results").resolve())


def build_model(hidden):
    return nn.Sequential(nn.Linear(10, hidden), nn.ReLU(), nn.Linear(hidden, 1))


def fit(model, table, lr, epochs):
    features = torch.tensor(table.drop(columns="target").to_numpy("float32"))
    target = torch.tensor(table[["target"]].to_numpy("float32"))
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features), target)
        loss.backward()
        optimizer.step()
    return loss.item()


def scale(batch: pd.DataFrame) -> pd.DataFrame:
    features = batch.drop(columns="target") * 20
    return features.assign(target=batch["target"] / 100)


def trial(config, table):
    torch.manual_seed(0)
    tune.report({"loss": fit(build_model(8), table, config["lr"], epochs=20)})


def train_worker(config):
    context = train.get_context()
    shard = config["table"].iloc[context.get_world_rank() :: context.get_world_size()]
    torch.manual_seed(0)
    model = prepare_model(build_model(8))
    loss = fit(model, shard, config["lr"], epochs=60)
    checkpoint = None
    if context.get_world_rank() == 0:
        plain = model.module if hasattr(model, "module") else model
        folder = Path("checkpoint").resolve()
        folder.mkdir(exist_ok=True)
        torch.save(plain.state_dict(), folder / "model.pt")
        checkpoint = Checkpoint.from_directory(str(folder))
    metrics = {"loss": loss, "world_size": context.get_world_size()}
    train.report(metrics, checkpoint=checkpoint)


ray.init()

data = load_diabetes(as_frame=True).frame
table = ray.data.from_pandas(data).map_batches(scale, batch_format="pandas").to_pandas()

tuner = tune.Tuner(
    tune.with_parameters(trial, table=table),
    param_space={"lr": tune.grid_search([0.003, 0.03])},
    tune_config=tune.TuneConfig(metric="loss", mode="min"),
    run_config=tune.RunConfig(storage_path=RESULTS, name="tune"),
)
best = tuner.fit().get_best_result().config

trainer = TorchTrainer(
    train_worker,
    train_loop_config={"lr": best["lr"], "table": table},
    scaling_config=ScalingConfig(num_workers=int(ray.cluster_resources()["CPU"])),
    run_config=RunConfig(storage_path=RESULTS, name="train"),
)
result = trainer.fit()

model = build_model(8)
with result.checkpoint.as_directory() as folder:
    model.load_state_dict(torch.load(Path(folder) / "model.pt"))
with mlflow.start_run():
    mlflow.log_params(best)
    mlflow.log_metric("loss", result.metrics["loss"])
    mlflow.log_metric("workers", result.metrics["world_size"])
    mlflow.pytorch.log_model(
        model.eval(),
        name="progression",
        input_example=table.drop(columns="target").head(2).to_numpy("float32"),
        registered_model_name="progression-ray",
        pip_requirements=["mlflow", "torch==2.13.0"],
    )
