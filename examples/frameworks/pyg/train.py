import mlflow
import torch
from torch.nn import functional
from torch_geometric.datasets import KarateClub
from torch_geometric.nn import GCNConv

data = KarateClub()[0]
torch.manual_seed(0)


class GCN(torch.nn.Module):
    def __init__(self, edges):
        super().__init__()
        self.first = GCNConv(data.num_features, 16)
        self.second = GCNConv(16, int(data.y.max()) + 1)
        self.register_buffer("edges", edges)

    def forward(self, nodes):
        nodes = functional.relu(self.first(nodes, self.edges))
        return self.second(nodes, self.edges)


model = GCN(data.edge_index)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
with mlflow.start_run():
    for _ in range(200):
        optimizer.zero_grad()
        scores = model(data.x)
        loss = functional.cross_entropy(scores[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
    accuracy = (model(data.x).argmax(dim=1) == data.y).float().mean().item()
    print(f"accuracy {accuracy:.3f}")
    mlflow.log_metric("node_accuracy", accuracy)
    mlflow.pytorch.log_model(
        model.eval(),
        name="members",
        input_example=data.x.numpy(),
        registered_model_name="members-pyg",
        pip_requirements="requirements.txt",
    )
