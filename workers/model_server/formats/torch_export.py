"""torch.export: a `.pt2` file. Loading one runs code, which is why it happens only here."""

import os
import re
from pathlib import Path
from typing import Any, Final

import torch
from torch.export.passes import move_to_device_pass

from slipway.schemas.serving import Signature
from workers.model_server.errors import NotReady
from workers.model_server.formats.torch_module import TorchModel

# In torch's error messages without a GPU, whether or not it was built for CUDA.
_NEEDS_GPU: Final = re.compile(r"CUDA|NVIDIA")


def load(path: Path, signature: Signature | None) -> TorchModel:
    """Load the exported program on the CPU, or on the GPU the replica was given."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return TorchModel("torch_export", module_on(path, device), signature or Signature(), device)


def module_on(path: Path, device: str) -> Any:
    """Return a module that makes its tensors on that device, if it was exported on the CPU."""
    try:
        program = torch.export.load(str(path))
    except (AssertionError, RuntimeError) as error:
        # Unlike TorchScript, this format cannot load tensors of another device.
        if device != "cpu" or not _NEEDS_GPU.search(str(error)):
            raise
        detail = "The program was exported on a GPU, and this replica has none."
        raise NotReady(
            f"{detail} Give the endpoint a tier with a GPU, or export the model on the CPU: "
            "torch.export.export(model.cpu(), …)."
        ) from error
    if device != "cpu":
        program = move_to_device_pass(program, device)
    return program.module()
