"""Reads the format and signature of a TorchScript or torch.export archive. It is untrusted.

Both are zip files. Their names are listed, and the graph of an exported program is read as JSON.
The pickles in them, which are code, are never opened. Sizes are checked before reading.
"""

import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

import orjson

from portal.registry.mlmodel import BadModelFile
from slipway.schemas.serving import ModelFormat

_BROKEN = (zipfile.BadZipFile, zlib.error, OSError)
_MAX_LIST_BYTES = 2 * 1024**2
_MAX_GRAPH_BYTES = 8 * 1024**2
_MAX_TENSORS = 1_000
# Numbers of torch's own schema of exported programs, by the names that signatures have.
_TYPES: Final = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float16",
    7: "float32",
    8: "float64",
    12: "bool",
}


class _Bounded:
    """A file that returns no more at once than the name list of a large model takes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable = file.seek, file.tell, file.seekable

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes, or the rest of the file. Raises BadModelFile for too many."""
        requested = size if size >= 0 else _MAX_LIST_BYTES + 1
        file = self._file.read(requested) if requested <= _MAX_LIST_BYTES + 1 else None
        if file is None or len(file) > _MAX_LIST_BYTES:
            raise BadModelFile("the archive has too many entries")
        return file


def read_archive(file: BinaryIO) -> tuple[ModelFormat, dict[str, Any] | None]:
    """Return the format of a file, and its signature if it has one.

    Raises BadModelFile for a file that has neither format.
    """
    try:
        with zipfile.ZipFile(_Bounded(file)) as archive:
            names = {_inner(name): name for name in archive.namelist()}
            if "constants.pkl" in names and any(name.startswith("code/") for name in names):
                return ModelFormat.TORCHSCRIPT, None
            graph = names.get("models/model.json")
            if graph is not None:
                return ModelFormat.TORCH_EXPORT, _signature_in(archive, graph)
            if "serialized_exported_program.json" in archive.namelist():
                return ModelFormat.TORCH_EXPORT, None  # as torch wrote them before 2.8
    except (*_BROKEN, ValueError, RuntimeError, EOFError) as error:
        raise BadModelFile("the file is not an archive saved by torch") from error
    raise BadModelFile(
        "the file has no model that can run without its code, perhaps only weights: save it "
        "with torch.export.save or torch.jit.save"
    )


def _inner(name: str) -> str:
    """Return a name without the top folder of every torch archive."""
    return name.partition("/")[2]


def _signature_in(archive: zipfile.ZipFile, name: str) -> dict[str, Any] | None:
    if archive.getinfo(name).file_size > _MAX_GRAPH_BYTES:
        return None
    with archive.open(name) as file:
        content = file.read(_MAX_GRAPH_BYTES + 1)
    if len(content) > _MAX_GRAPH_BYTES:
        return None
    try:
        return _signature(orjson.loads(content))
    except (KeyError, TypeError, AttributeError, orjson.JSONDecodeError):
        return None  # another version of the schema: serving needs no signature


def _signature(program: Any) -> dict[str, Any] | None:
    module = program["graph_module"]
    tensors = module["graph"]["tensor_values"]
    sides = module["signature"]
    inputs = _tensor_specs(sides["input_specs"], "user_input", tensors)
    outputs = _tensor_specs(sides["output_specs"], "user_output", tensors)
    if inputs is None or outputs is None:
        return None
    for output, name in zip(outputs, _output_names(module), strict=False):
        output["name"] = name
    return {"inputs": inputs, "outputs": outputs, "params": []}


def _tensor_specs(specs: Any, kind: str, tensors: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tensors of one side, or None if it has values other than tensors."""
    result: list[dict[str, Any]] = []
    for spec in specs[: 100 * _MAX_TENSORS]:
        if kind not in spec:
            continue  # a parameter or a buffer
        tensor = spec[kind]["arg"].get("as_tensor")
        described = _tensor(tensor["name"], tensors[tensor["name"]]) if tensor else None
        if described is None or len(result) == _MAX_TENSORS:
            return None
        result.append(described)
    return result


def _tensor(name: Any, meta: Any) -> dict[str, Any] | None:
    kind = _TYPES.get(meta["dtype"])
    shape = [size.get("as_int", -1) for size in meta["sizes"]]
    whole = len(shape) <= 16 and all(type(length) is int for length in shape)
    if kind is None or not whole or not isinstance(name, str) or not _is_name(name):
        return None
    return {"name": name, "type": kind, "required": True, "shape": shape}


def _is_name(name: str) -> bool:
    return 0 < len(name) <= 200 and name.isprintable()


def _output_names(module: Any) -> list[str]:
    """Return the names of the outputs, if the model returns them as a mapping."""
    spec = orjson.loads(module["module_call_graph"][0]["signature"]["out_spec"])[1]
    if spec["type"] != "builtins.dict":
        return []
    names = orjson.loads(spec["context"])
    fine = isinstance(names, list) and all(
        isinstance(name, str) and _is_name(name) for name in names
    )
    return names if fine else []
