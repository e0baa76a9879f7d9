import os

import mlflow
import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images / 16, dtype=torch.float32)
dataset = TensorDataset(images, torch.tensor(labels))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=64, sampler=sampler, num_workers=1)

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
ddp = DistributedDataParallel(model)
optimizer = torch.optim.Adam(ddp.parameters(), lr=3e-3)

if rank == 0:
    mlflow.start_run()
    mlflow.log_params({"world_size": world_size, "local_rank": os.environ["LOCAL_RANK"]})
for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch, target in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(batch), target)
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
        mlflow.log_metric("loss", loss.item(), step=epoch)
if rank == 0:
    mlflow.log_metric("ranks", world_size)
    mlflow.pytorch.log_model(
        model.eval(),
        name="digits",
        input_example=images[:2].numpy(),
        registered_model_name="digits-pytorch",
    )
    mlflow.end_run()
dist.barrier()
dist.destroy_process_group()
