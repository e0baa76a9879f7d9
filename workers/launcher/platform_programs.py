"""The platform's own programs: their commands, their code, and what a warm process imports.

The one table of them. Task specs name a program by `name` (`Kind.warm`), commands by `command`.
A new kind of workload with a program of its own adds an entry here, and its package to no other
list. Standard library only, because every interpreter of a task can import it.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class PlatformProgram:
    """One program that nodes know by name.

    `command` is the first word of a task's command line that starts `module`, empty for scripts
    of users. `packages` are the packages of `workers` that its tasks must be able to read.
    `imports` are the modules that a warm process imports, `imported_later` those that its tasks
    import soon after. Missing ones are left out.
    `first_optimizer` also builds an optimizer of torch, whose first instance imports
    torch._dynamo and its family (1 to 2 s). With `is_awaited` a start waits for a warm process
    that is not ready yet, because that is faster than a cold start.
    """

    name: str
    imports: tuple[str, ...]
    imported_later: tuple[str, ...] = ()
    command: str = ""
    module: str = ""
    packages: tuple[str, ...] = ()
    first_optimizer: bool = False
    is_awaited: bool = True


# Modules that most training scripts import. It also serves the rendezvous store of gangs of one.
_TRAINING: Final = PlatformProgram(
    name="torch",
    imports=(
        *("numpy", "torch", "torch.distributed", "torch.nn.parallel", "torch.utils.data"),
        *("torch.distributed.fsdp", "torch.distributed.checkpoint", "torch.distributed.tensor"),
        *("torch.distributed.tensor.parallel", "torch.distributed.pipelining", "torch.optim"),
        *("torch.distributed.checkpoint.state_dict", "torch.nn.parallel.distributed"),
    ),
    imported_later=("torch._dynamo",),
    first_optimizer=True,
)
# Modules that a notebook server imports before it can listen: ours, Jupyter's, the Hub's. Ours
# comes first, because it says what not to load.
_LAB: Final = PlatformProgram(
    name="jupyterlab",
    command="slipway-lab",
    module="workers.lab",
    packages=("lab", "portal_client"),
    imports=(
        *("workers.lab.server", "jupyterlab.labapp", "jupyter_server_terminals", "nbconvert"),
        *("jupyter_server.services.contents.handlers", "jupyter_server.services.kernels.handlers"),
        *("jupyter_server.services.sessions.handlers", "jupyter_server.services.events.handlers"),
        *("jupyter_server.services.kernels.connection.channels",),
        *("jupyterlab.handlers.announcements", "jupyterlab_git.handlers", "jupyter_resource_usage"),
    ),
    # Imported by the first kernel.
    imported_later=("ipykernel.kernelapp", "IPython", "jupyterhub.singleuser"),
)
# Modules that a replica imports before it can load its model: ours, MLflow's, the model's. It then
# imports only what its own model needs, so a cold start is faster than a warm process that is not
# ready. That one is started when the replica no longer needs the processors.
_MODEL_SERVER: Final = PlatformProgram(
    name="serving",
    command="slipway-model-server",
    module="workers.model_server",
    packages=("model_server", "portal_client", "serving"),
    imports=(
        *("uvloop", "httpx", "orjson", "numpy", "pandas", "pyarrow", "mlflow", "mlflow.pyfunc"),
        *("workers.model_server.__main__", "workers.model_server.formats.mlflow_model"),
        *("sklearn.pipeline", "sklearn.preprocessing", "sklearn.linear_model", "sklearn.ensemble"),
        *("sklearn.neural_network", "mlflow.sklearn", "torch", "mlflow.pytorch"),
    ),
    is_awaited=False,
)
# The job of a batch prediction loads models as a replica does, and starts from a warm process of
# replicas.
_BATCH_PREDICTOR: Final = PlatformProgram(
    name="batch-prediction",
    command="slipway-batch-predict",
    module="workers.batch_predictor",
    packages=("batch_predictor", *_MODEL_SERVER.packages),
    imports=("pyarrow.parquet",),
    is_awaited=False,
)
# The program that plain jobs are forked from.
TRAINING: Final = _TRAINING.name
PLATFORM_PROGRAMS: Final = {
    program.name: program for program in (_TRAINING, _LAB, _MODEL_SERVER, _BATCH_PREDICTOR)
}
# The module of each command that the platform provides.
MODULE_OF_COMMAND: Final = {
    program.command: program.module for program in PLATFORM_PROGRAMS.values() if program.command
}
# Packages of `workers` that tasks can read: they start tasks, or tasks run them.
READABLE_PACKAGES: Final = tuple(
    sorted(
        {"launcher"}
        | {package for program in PLATFORM_PROGRAMS.values() for package in program.packages}
    )
)
