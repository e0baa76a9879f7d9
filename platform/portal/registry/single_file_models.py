"""Single-file models that are not MLflow models: TorchScript, torch.export, ONNX.

Finds the model file of a version, its format, and its signature if the file has one. Files are
read, never loaded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from portal.registry.mlmodel import BadModelFile
from portal.registry.onnx_file import read_onnx
from portal.registry.ports import ModelFiles, ModelFolderFile
from portal.registry.torch_file import read_archive
from slipway.schemas.serving import ModelFormat

_LONGEST_PATH = 1000
_ENDINGS: Final = {
    ".onnx": {ModelFormat.ONNX},
    ".pt2": {ModelFormat.TORCH_EXPORT},
    ".pt": {ModelFormat.TORCHSCRIPT, ModelFormat.TORCH_EXPORT},
    ".pth": {ModelFormat.TORCHSCRIPT, ModelFormat.TORCH_EXPORT},
    ".ts": {ModelFormat.TORCHSCRIPT},
    ".torchscript": {ModelFormat.TORCHSCRIPT},
}


@dataclass(frozen=True)
class BareModel:
    """The file that is the model. `signature` is shaped as `SignatureOut`."""

    format: ModelFormat
    entry: str
    signature: dict[str, Any] | None


def find_bare(
    store: ModelFiles,
    folder: str,
    model_folder_files: Sequence[ModelFolderFile],
    model_format: ModelFormat | None,
) -> BareModel:
    """Return the model among the files of a folder without an MLmodel file.

    `model_format` is the format stated at its registration. Raises BadModelFile, FilesUnreadable.
    """
    file = _only_model_file(model_folder_files, model_format)
    with store.opened(folder, file.path) as content:
        if ModelFormat.ONNX in _formats(file.path):
            format_, signature = ModelFormat.ONNX, read_onnx(content, file.size_bytes)
        else:
            format_, signature = read_archive(content)
    if model_format not in (None, format_):
        raise BadModelFile(
            f"{_path_tail(file)} is {format_.value}, but the format given is {model_format}"
        )
    return BareModel(format_, file.path, signature)


def _only_model_file(
    model_folder_files: Sequence[ModelFolderFile], model_format: ModelFormat | None
) -> ModelFolderFile:
    able = [
        file
        for file in model_folder_files
        if _formats(file.path) and (model_format is None or model_format in _formats(file.path))
    ]
    if len(able) == 1:
        return able[0]
    if able:
        raise BadModelFile(
            f"{_path_tail(able[0])} and {_path_tail(able[1])} could both be the model: leave only "
            "one in the folder"
        )
    raise BadModelFile(
        "they contain no MLmodel file and no model in "
        + (
            f"the format {model_format}"
            if model_format
            else "TorchScript, torch.export or ONNX format"
        )
    )


def _path_tail(file: ModelFolderFile) -> str:
    return file.path[-100:]


def _formats(path: str) -> set[ModelFormat]:
    if len(path) > _LONGEST_PATH:
        return set()
    return _ENDINGS.get(PurePosixPath(path).suffix.lower(), set())
