import deepspeed
import mlflow
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
images = torch.tensor(images / 16, dtype=torch.float32)
dataset = TensorDataset(images, torch.tensor(labels))

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
settings = {
    "train_micro_batch_size_per_gpu": 64,
    "optimizer": {"type": "Adam", "params": {"lr": 3e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 2},
}
deepspeed.init_distributed()
engine, _, loader, _ = deepspeed.initialize(
    model=model, model_parameters=model.parameters(), training_data=dataset, config=settings
)
is_first = engine.global_rank == 0
if is_first:
    mlflow.start_run()
for epoch in range(3):
    for batch, target in loader:
        scores = engine(batch.to(engine.device))
        loss = nn.functional.cross_entropy(scores, target.to(engine.device))
        engine.backward(loss)
        engine.step()
    if is_first:
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        mlflow.log_metric("loss", loss.item(), step=epoch)
if is_first:
    mlflow.log_metric("ranks", engine.world_size)
    mlflow.pytorch.log_model(
        engine.module.cpu().eval(),
        name="digits",
        input_example=images[:2].numpy(),
        registered_model_name="digits-deepspeed",
        pip_requirements=["mlflow", "torch==2.13.0"],
    )
    mlflow.end_run()
