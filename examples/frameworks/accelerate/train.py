import mlflow
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True, log_with="mlflow")
accelerator.init_trackers("digits", config={"lr": 3e-3, "epochs": 3})
torch.manual_seed(0)

images, labels = load_digits(return_X_y=True)
images = torch.tensor(images / 16, dtype=torch.float32)
dataset = TensorDataset(images, torch.tensor(labels))

model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
model, optimizer, loader = accelerator.prepare(
    model,
    torch.optim.Adam(model.parameters(), lr=3e-3),
    DataLoader(dataset, batch_size=64, shuffle=True),
)

for epoch in range(3):
    correct, seen = 0, 0
    for batch, target in loader:
        optimizer.zero_grad()
        scores = model(batch)
        loss = nn.functional.cross_entropy(scores, target)
        accelerator.backward(loss)
        optimizer.step()
        chosen, target = accelerator.gather_for_metrics((scores.argmax(dim=1), target))
        correct, seen = correct + int((chosen == target).sum()), seen + len(target)
    accelerator.print(f"epoch {epoch} loss {loss.item():.4f} accuracy {correct / seen:.4f}")
    accelerator.log({"loss": loss.item(), "accuracy": correct / seen}, step=epoch)
accelerator.log({"ranks": accelerator.num_processes}, step=0)

if accelerator.is_main_process:
    mlflow.pytorch.log_model(
        accelerator.unwrap_model(model).eval(),
        name="digits",
        input_example=images[:2].numpy(),
        registered_model_name="digits-accelerate",
    )
accelerator.end_training()
