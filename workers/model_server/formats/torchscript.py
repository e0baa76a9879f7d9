"""TorchScript: a module saved by `torch.jit.save`."""

import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

import torch

from slipway.schemas.serving import Signature
from workers.model_server.formats.torch_module import TorchModel

log = logging.getLogger(__name__)
_SMALL_BYTES: Final = 4 << 20


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
    return TorchModel("torchscript", _call_of(module.eval()), signature or Signature(), device)


def _call_of(module: Any) -> Callable[..., Any]:
    """Return what predicts: the graph of a small module in one piece, where that is possible.

    The way through the modules in it costs some microseconds for each batch, which is what a small
    model takes. Numbers stay what they were to the last bit: nothing is folded. A large module is
    left as it is: frozen, a transformer took 13 % longer, since its layers were taken apart.
    """
    if sum(weight.nbytes for weight in module.parameters()) > _SMALL_BYTES:
        return cast(Callable[..., Any], module.forward)
    try:
        module = torch.jit.freeze(module, optimize_numerics=False)
    except RuntimeError as error:
        log.info("the module is used as it is, not frozen: %s", str(error).splitlines()[0][:200])
    return cast(Callable[..., Any], module.forward)
