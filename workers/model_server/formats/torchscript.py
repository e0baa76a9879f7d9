"""TorchScript: a module saved by `torch.jit.save`."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import torch

from slipway.schemas.serving import Signature
from workers.model_server.formats.torch_module import TorchModel

log = logging.getLogger(__name__)
_SMALL_BYTES: Final = 4 << 20
_STATEFUL: Final = frozenset(
    {"prim::GetAttr", "prim::SetAttr", "prim::CallMethod", "prim::CallFunction", "prim::PythonOp"}
)


def load(path: Path, signature: Signature | None) -> TorchModel:
    """Load the module on the CPU, or on the GPU the replica was given."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    call, keeps_nothing = _call_of(module_on(path, device).eval())
    return TorchModel(
        "torchscript", call, signature or Signature(), device, keeps_nothing=keeps_nothing
    )


def module_on(path: Path, device: str) -> Any:
    """Return a module that makes its tensors on that device, wherever it was traced."""
    with warnings.catch_warnings():
        # Hide torch's deprecation warning: the user who deploys the model cannot act on it.
        warnings.simplefilter("ignore")
        module: Any = torch.jit.load(  # type: ignore[no-untyped-call]
            str(path), map_location=device
        )
    # Traced code contains its device for each new tensor. map_location only applies to weights.
    for part in module.modules():
        with suppress(RuntimeError):  # it has no graph
            for node in part.graph.findAllNodes("prim::Constant"):
                if node.output().type().kind() == "DeviceObjType":
                    node.s_("value", device)
    return module


def _call_of(module: Any) -> tuple[Callable[..., Any], bool]:
    """Return what predicts, and whether it surely keeps nothing of what it is given.

    The graph of a small module is in one piece, where that is possible: the way through the modules
    in it costs some microseconds for each batch, which is what a small model takes. Numbers stay
    what they were to the last bit: nothing is folded. A large module is left as it is: frozen, a
    transformer took 13 % longer, since its layers were taken apart.
    """
    if sum(weight.nbytes for weight in module.parameters()) > _SMALL_BYTES:
        return cast(Callable[..., Any], module.forward), False
    try:
        module = torch.jit.freeze(module, optimize_numerics=False)
    except RuntimeError as error:
        log.info("the module is used unfrozen: %s", str(error).splitlines()[0][:200])
        return cast(Callable[..., Any], module.forward), False
    return cast(Callable[..., Any], module.forward), all(map(_is_stateless, _nodes(module.graph)))


def _nodes(block: Any) -> Iterator[str]:
    for node in block.nodes():
        yield node.kind()
        for inner in node.blocks():
            yield from _nodes(inner)


def _is_stateless(kind: str) -> bool:
    """Return whether an operation of a frozen graph is stateless.

    Mutable state would remain an attribute.
    """
    return kind.startswith(("aten::", "prim::")) and kind not in _STATEFUL
