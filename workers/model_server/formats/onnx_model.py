"""ONNX, by ONNX Runtime."""

import os
import re
from pathlib import Path
from typing import Any, Final

import onnxruntime

from slipway.schemas.serving import Datatype, FieldSpec, Signature
from workers.model_server.errors import NotReady
from workers.model_server.tensors import TensorCodec
from workers.serving.wire import RequestFrame

_TYPES: Final = {
    "bool": Datatype.BOOL,
    "uint8": Datatype.UINT8,
    "uint16": Datatype.UINT16,
    "uint32": Datatype.UINT32,
    "uint64": Datatype.UINT64,
    "int8": Datatype.INT8,
    "int16": Datatype.INT16,
    "int32": Datatype.INT32,
    "int64": Datatype.INT64,
    "float16": Datatype.FP16,
    "float": Datatype.FP32,
    "double": Datatype.FP64,
    "string": Datatype.BYTES,
}


class OnnxModel:
    """A session and the names of its outputs."""

    platform = "onnx"

    def __init__(self, session: Any, signature: Signature) -> None:
        self.signature = signature
        self.codec = TensorCodec(signature)
        self._session = session
        self._outputs = [output.name for output in session.get_outputs()]

    def predict(self, inputs: dict[str, Any], params: dict[str, Any]) -> Any:
        """Return the outputs as arrays."""
        value = self._session.run(self._outputs, inputs)
        return value[0] if len(value) == 1 else dict(zip(self._outputs, value, strict=True))

    def predict_row(self, request_frame: RequestFrame) -> Any | None:
        """Return the outputs of a plain request for one row, or None for any other request."""
        if not self.codec.read_row(request_frame):
            return None
        return self.predict({self.signature.inputs[0].name: self.codec.row}, {})


def load(path: Path, signature: Signature | None) -> OnnxModel:
    """Open the model on the threads, and on the GPU, the replica was given."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    options.inter_op_num_threads = 1
    gpu = "CUDAExecutionProvider"
    there = onnxruntime.get_available_providers()
    providers = [gpu] if gpu in there and os.environ.get("CUDA_VISIBLE_DEVICES") else []
    session = onnxruntime.InferenceSession(
        str(path), options, providers=[*providers, "CPUExecutionProvider"]
    )
    result = Signature(
        inputs=[_spec(value) for value in session.get_inputs()],
        outputs=[_spec(value) for value in session.get_outputs()],
    )
    if signature is not None:
        missing = {spec.name for spec in result.inputs} - {spec.name for spec in signature.inputs}
        if missing:
            raise NotReady(f"The model needs {sorted(missing)}, which its signature does not have.")
    return OnnxModel(session, signature or result)


def _spec(value: Any) -> FieldSpec:
    match = re.fullmatch(r"tensor\((\w+)\)", value.type)
    if match is None or match[1] not in _TYPES:
        raise NotReady(f"{value.name!r} of the model is a {value.type}, which cannot be served.")
    shape = [length if isinstance(length, int) else -1 for length in value.shape]
    return FieldSpec(name=value.name, datatype=_TYPES[match[1]], shape=shape)
