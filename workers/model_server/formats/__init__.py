"""Loading a model: one file a format, and only the one that is needed is imported.

A replica of an ONNX model holds no torch, one of a TorchScript model no pandas and no MLflow.
"""

import importlib
from pathlib import Path
from typing import Final

from slipway.schemas.serving import ModelFormat, ReplicaSpec
from workers.model_server.codecs import Model
from workers.model_server.errors import NotReady, one_line

_MODULES: Final = {
    ModelFormat.MLFLOW: "workers.model_server.formats.mlflow_model",
    ModelFormat.TORCHSCRIPT: "workers.model_server.formats.torchscript",
    ModelFormat.TORCH_EXPORT: "workers.model_server.formats.torch_export",
    ModelFormat.ONNX: "workers.model_server.formats.onnx_model",
}


def open_model(spec: ReplicaSpec, model_dir: Path) -> Model:
    """Load the model, which may run its code. Raises NotReady with the reason."""
    try:
        loader = importlib.import_module(_MODULES[spec.format])
    except ImportError as error:
        raise NotReady(
            f"The environment of this replica cannot load {spec.format.value} models: {error}"
        ) from error
    path = model_dir / spec.entry if spec.entry else model_dir
    if not path.exists():
        raise NotReady(f"There is no {spec.entry or 'folder'} in the files of the model.")
    try:
        model: Model = loader.load(path, spec.signature)
    except NotReady:
        raise
    except Exception as error:
        message = one_line(f"{type(error).__name__}: {error}", limit=1800)
        raise NotReady(f"Loading the {spec.format.value} model failed: {message}") from error
    return model
