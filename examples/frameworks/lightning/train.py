import os

import lightning as L  # noqa: N812
import mlflow
import torch
from lightning.pytorch.loggers import MLFlowLogger
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


class Classifier(L.LightningModule):
    def __init__(self, hidden: int = 64, lr: float = 3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.net = nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        loss = nn.functional.cross_entropy(self(images), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        images, labels = batch
        accuracy = (self(images).argmax(dim=1) == labels).float().mean()
        self.log("val_accuracy", accuracy, prog_bar=True, sync_dist=True)
        self.log("ranks", float(self.trainer.world_size), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.hparams.lr)


L.seed_everything(0)
images, labels = load_digits(return_X_y=True)
images = torch.tensor(images / 16, dtype=torch.float32)
train, val = random_split(TensorDataset(images, torch.tensor(labels)), [0.8, 0.2])

logger = MLFlowLogger(tracking_uri=mlflow.get_tracking_uri(), experiment_name="digits")
trainer = L.Trainer(
    accelerator="cpu",
    devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
    num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", "1")),
    max_epochs=5,
    logger=logger,
    log_every_n_steps=5,
)
model = Classifier()
trainer.fit(model, DataLoader(train, batch_size=64, shuffle=True), DataLoader(val, batch_size=64))

if trainer.is_global_zero:
    with mlflow.start_run(run_id=logger.run_id):
        mlflow.pytorch.log_model(
            model.eval(),
            name="digits",
            input_example=images[:2].numpy(),
            registered_model_name="digits-lightning",
        )
