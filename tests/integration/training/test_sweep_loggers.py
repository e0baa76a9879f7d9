"""Sweeps of scripts that log by the loggers and callbacks of their frameworks, unmodified."""

from collections.abc import Callable
from secrets import token_hex

import pytest

from slipway.resources.sweeps import sweep_body
from slipway.schemas.training import JobIn
from tests.portal.training.jobs import tar_of
from tests.portals import RunningPortal
from tests.processes import wait_for

pytestmark = pytest.mark.integration

LIGHTNING = """
import argparse, lightning, mlflow, torch
from lightning.pytorch.loggers import MLFlowLogger

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
lr = parser.parse_args().lr
inputs = torch.linspace(-1, 1, 64).unsqueeze(1)

class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.save_hyperparameters({"lr": lr})

    def training_step(self, batch, _):
        (x,) = batch
        loss = ((self.layer(x) - 3 * x) ** 2).mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=lr)

logger = MLFlowLogger(experiment_name="lines", tracking_uri=mlflow.get_tracking_uri())
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=3, logger=logger, enable_progress_bar=False, log_every_n_steps=1
)
data = torch.utils.data.TensorDataset(inputs)
trainer.fit(Line(), torch.utils.data.DataLoader(data, batch_size=16))
"""
TRANSFORMERS = """
import argparse, torch
from transformers import Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)

class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def forward(self, x, labels):
        outputs = self.layer(x)
        return {"loss": ((outputs - labels) ** 2).mean(), "outputs": outputs}

rows = [{"x": torch.tensor([i / 32]), "labels": torch.tensor([3 * i / 32])} for i in range(64)]
arguments = TrainingArguments(
    output_dir="checkpoints", num_train_epochs=3, learning_rate=parser.parse_args().lr,
    report_to="mlflow", logging_steps=2, use_cpu=True, save_strategy="no",
)
Trainer(model=Line(), args=arguments, train_dataset=rows).train()
"""
KERAS = """
import argparse, os
os.environ["KERAS_BACKEND"] = "torch"
import keras, mlflow, numpy

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
model.compile(optimizer=keras.optimizers.SGD(parser.parse_args().lr), loss="mse")
x = numpy.linspace(-1, 1, 64)[:, None]
with mlflow.start_run():
    model.fit(x, 3 * x, epochs=3, verbose=0, callbacks=[mlflow.keras.MlflowCallback()])
"""


@pytest.mark.parametrize(
    ("script", "requirements"),
    [
        pytest.param(LIGHTNING, "", id="lightning", marks=pytest.mark.thorough),
        pytest.param(TRANSFORMERS, "", id="transformers", marks=pytest.mark.thorough),
        pytest.param(KERAS, "keras\nmlflow\ntorch==2.13.0\n", id="keras", marks=pytest.mark.slow),
    ],
)
def test_a_sweep_reads_the_metric_that_a_logger_writes(
    whole_slipway: Callable[[], RunningPortal], script: str, requirements: str
) -> None:
    project = f"loggers-{token_hex(3)}"
    with whole_slipway().client("root") as root:
        root.post("/projects", json={"name": project, "slug": project}).raise_for_status()
        answer = root.post(
            f"/projects/{project}/snapshots",
            content=tar_of({"train.py": script.encode()}),
            headers={"Content-Type": "application/octet-stream"},
        )
        job = JobIn(
            script="train.py",
            tier="cpu-small",
            snapshot=answer.raise_for_status().json()["digest"],
            requirements=requirements,
        )
        space = {"lr": "choice(0.01,0.3)"}
        body = sweep_body(
            job, name="lines", parameters=space, metric="loss:min", trials=2, algorithm="grid"
        )
        started = root.post(f"/projects/{project}/sweeps", json=body.model_dump(mode="json"))
        address = f"/projects/{project}/sweeps/{started.raise_for_status().json()['id']}"
        is_over = lambda: root.get(address).json()["state"] != "running"  # noqa: E731
        wait_for(is_over, "end of the sweep", within_s=600)
        sweep = root.get(address).json()
        assert (sweep["state"], sweep["complete"]) == ("finished", 2), sweep["explanation"]
        assert sweep["best"]["parameters"] == {"lr": "0.3"}
