"""What TorchScript and torch.export have in common: a callable of tensors."""

from collections.abc import Callable
from typing import Any

import torch

from slipway.schemas.serving import Signature
from workers.model_server.tensors import TensorCodec


class TorchModel:
    """Calls a module with tensors in the order of the signature."""

    def __init__(
        self, platform: str, module: Callable[..., Any], signature: Signature, device: str
    ) -> None:
        self.platform = platform
        self.signature = signature
        self.codec = TensorCodec(signature)
        self._module = module
        self._device = device
        self._modes: list[torch.inference_mode] = []

    def predict(self, inputs: dict[str, Any], params: dict[str, Any]) -> Any:
        """Return the outputs as arrays."""
        tensors = [torch.from_numpy(array) for array in inputs.values()]
        is_on_cpu = self._device == "cpu"
        if not is_on_cpu:
            tensors = [tensor.to(self._device) for tensor in tensors]
        if not torch.is_inference_mode_enabled():
            # It is a thread's own, and stays: entering and leaving costs what a small model does.
            mode = torch.inference_mode()
            mode.__enter__()
            self._modes.append(mode)
        found = self._module(*tensors, **params)
        if is_on_cpu and type(found) is torch.Tensor:
            try:
                return found.numpy()
            except TypeError:  # numpy has no such type
                return _arrays(found)
        return _arrays(found)


def _arrays(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        if found.device.type != "cpu":
            found = found.cpu()
        return (found.float() if found.dtype == torch.bfloat16 else found).numpy()
    if isinstance(found, dict):
        return {name: _arrays(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return tuple(_arrays(value) for value in found)
    return found
