"""Common base of TorchScript and torch.export models: a callable of tensors."""

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch

from slipway.schemas.serving import Signature
from workers.model_server.tensors import TensorCodec
from workers.serving.wire import RequestFrame


class TorchModel:
    """Calls a module with tensors in the order of the signature.

    One that `keeps_nothing` of its inputs is given each single row in the same tensor.
    """

    def __init__(
        self,
        platform: str,
        module: Callable[..., Any],
        signature: Signature,
        device: str,
        *,
        keeps_nothing: bool = False,
    ) -> None:
        self.platform = platform
        self.signature = signature
        self.codec = TensorCodec(signature)
        self._module = module
        self._device = device
        self._thread = 0
        self._modes: list[torch.inference_mode] = []
        row = self.codec.row
        self._row: torch.Tensor | None = None
        if keeps_nothing and row is not None and device == "cpu":
            self._row = torch.from_numpy(row)

    def predict(self, inputs: dict[str, Any], params: dict[str, Any]) -> Any:
        """Return the outputs as arrays."""
        tensors = [torch.from_numpy(array) for array in inputs.values()]
        if self._device != "cpu":
            tensors = [tensor.to(self._device) for tensor in tensors]
        if self._thread != get_ident():
            self._infer_only()
        return self._arrays(self._module(*tensors, **params))

    def predict_row(self, request_frame: RequestFrame) -> Any | None:
        """Return the outputs of a plain request for one row, or None for any other request."""
        if self._row is None or not self.codec.read_row(request_frame):
            return None
        if self._thread != get_ident():
            self._infer_only()
        return self._arrays(self._module(self._row))

    def _infer_only(self) -> None:
        if not torch.is_inference_mode_enabled():
            # The mode is per thread and stays on: to switch it costs as much as a small model.
            mode = torch.inference_mode()
            mode.__enter__()
            self._modes.append(mode)
        self._thread = get_ident()

    def _arrays(self, value: Any) -> Any:
        if self._device == "cpu" and type(value) is torch.Tensor:
            try:
                return value.numpy()
            except TypeError:  # numpy lacks this type
                return _arrays(value)
        return _arrays(value)


def _arrays(cpu: Any) -> Any:
    if isinstance(cpu, torch.Tensor):
        if cpu.device.type != "cpu":
            cpu = cpu.cpu()
        return (cpu.float() if cpu.dtype == torch.bfloat16 else cpu).numpy()
    if isinstance(cpu, dict):
        return {name: _arrays(value) for name, value in cpu.items()}
    if isinstance(cpu, list | tuple):
        return tuple(_arrays(value) for value in cpu)
    return cpu
