"""torch.export: a `.pt2` file. Loading one runs code, which is why it happens only here."""

import os
from pathlib import Path
from typing import Any

import torch
from torch.export.passes import move_to_device_pass

from slipway.schemas.serving import Signature
from workers.model_server.formats.torch_module import TorchModel


def load(path: Path, signature: Signature | None) -> TorchModel:
    """Load the exported program on the CPU, or on the GPU the replica was given."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return TorchModel("torch_export", module_on(path, device), signature or Signature(), device)


def module_on(path: Path, device: str) -> Any:
    """Return a module that makes its tensors on that device, if it was exported on the CPU."""
    program = torch.export.load(str(path))
    if device != "cpu":
        program = move_to_device_pass(program, device)
    return program.module()
