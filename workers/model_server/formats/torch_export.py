"""torch.export: a `.pt2` file. Loading one runs code, which is why it happens only here."""

import os
from pathlib import Path

import torch

from slipway.schemas.serving import Signature
from workers.model_server.formats.torch_module import TorchModel


def load(path: Path, signature: Signature | None) -> TorchModel:
    """Load the exported program on the CPU, or on the GPU the replica was given."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module = torch.export.load(str(path)).module()
    return TorchModel("torch_export", module.to(device), signature or Signature(), device)
