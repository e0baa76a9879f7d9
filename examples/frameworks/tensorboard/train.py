import mlflow
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

with SummaryWriter() as writer, mlflow.start_run():
    writer.add_images("digits", images[:16].reshape(-1, 1, 8, 8))
    for step in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        writer.add_scalar("loss", loss.item(), step)
        writer.add_histogram("weights", model[0].weight, step)
        mlflow.log_metric("loss", loss.item(), step=step)
    mlflow.log_metric("events_loss", loss.item())
