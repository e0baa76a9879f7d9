"""TorchScript: a module saved by `torch.jit.save`."""

import os
import warnings
from pathlib import Path
from typing import Any

import torch

from slipway.schemas.serving import Signature
from workers.model_server.formats.torch_module import TorchModel


def load(path: Path, signature: Signature | None) -> TorchModel:
    """Load the module on the CPU, or on the GPU the replica was given."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    with warnings.catch_warnings():
        # That torch recommends another format is no fault of who deploys this one.
        warnings.simplefilter("ignore")
        module: Any = torch.jit.load(  # type: ignore[no-untyped-call]
            str(path), map_location=device
        )
    module.eval()
    return TorchModel("torchscript", module, signature or Signature(), device)
