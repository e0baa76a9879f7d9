"""Modules that tasks of each kind import at startup."""

from typing import Final

# Modules that most training scripts import. Missing ones are left out.
TRAINING: Final = (
    *("numpy", "torch", "torch.distributed", "torch.nn.parallel", "torch.utils.data"),
    *("torch.distributed.fsdp", "torch.distributed.checkpoint", "torch.distributed.tensor"),
    *("torch.distributed.tensor.parallel", "torch.distributed.pipelining", "torch.optim"),
    *("torch.distributed.checkpoint.state_dict", "torch.nn.parallel.distributed"),
)
# Modules that a replica imports before it can load its model: ours, MLflow's, the model's.
SERVING: Final = (
    *("uvloop", "httpx", "orjson", "numpy", "pandas", "pyarrow", "mlflow", "mlflow.pyfunc"),
    *("workers.model_server.__main__", "workers.model_server.formats.mlflow_model"),
    *("sklearn.pipeline", "sklearn.preprocessing", "sklearn.linear_model", "sklearn.ensemble"),
    *("sklearn.neural_network", "mlflow.sklearn", "torch", "mlflow.pytorch"),
)
# Modules that a notebook server imports before it can listen: ours, Jupyter's, the Hub's. Ours is
# first, because it disables modules that should not load.
LAB: Final = (
    *("workers.lab.server", "jupyterlab.labapp", "jupyter_server_terminals", "nbconvert"),
    *("jupyter_server.services.contents.handlers", "jupyter_server.services.kernels.handlers"),
    *("jupyter_server.services.sessions.handlers", "jupyter_server.services.events.handlers"),
    *("jupyter_server.services.kernels.connection.channels", "jupyterlab.handlers.announcements"),
)
