"""Open Inference Protocol v2: requests and answers, tensors as JSON or as bytes behind it."""

import math
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from slipway.schemas.problem import FieldError
from slipway.schemas.serving import Datatype
from workers.model_server.arrays import DTYPES, Array, array_of, datatype_of, input_error
from workers.model_server.codecs import InferOptions
from workers.model_server.errors import BadInput
from workers.model_server.json_text import read_object
from workers.model_server.plain import dumps, plain, text_of
from workers.model_server.predictions import INFINITE
from workers.serving.wire import Content, RequestFrame

_MAX_NDIM: Final = 32
_MAX_ELEMENTS: Final = 2**31


def read_infer(
    request_frame: RequestFrame, *, raw_names: frozenset[str] = frozenset()
) -> tuple[dict[str, Array], InferOptions, dict[str, Any]]:
    """Return tensors by name, the output options, and parameters. Raises BadInput.

    Elements of BYTES are text. For inputs in `raw_names` that were sent as bytes, they are bytes.
    """
    cut = request_frame.head_len or len(request_frame.body)
    request = read_object(request_frame.body[:cut])
    tail = memoryview(request_frame.body)[cut:]
    listed = request.get("inputs")
    if not isinstance(listed, list) or not listed:
        raise BadInput("The request has no `inputs` list.")
    tensors: dict[str, Array] = {}
    at = 0
    for tensor in listed:
        name, array, used = _tensor(tensor, tail[at:], raw_names)
        if name in tensors:
            raise input_error(name, "appears twice")
        tensors[name] = array
        at += used
    if at != len(tail):
        raise BadInput(f"{len(tail) - at} bytes after the JSON belong to no tensor.")
    parameters = _object(request.get("parameters"), "parameters")
    return (
        tensors,
        _output_options(request, parameters),
        {
            name: value
            for name, value in parameters.items()
            if name not in ("binary_data_output", "sequence_id", "sequence_start", "sequence_end")
        },
    )


def _object(value: Any, name: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadInput(f"`{name}` is not an object.", [FieldError(field=name, message="object")])
    return value


def _output_options(request: dict[str, Any], parameters: dict[str, Any]) -> InferOptions:
    outputs, binary = [], set()
    requested = request.get("outputs") or []
    if not isinstance(requested, list):
        raise BadInput("`outputs` is not a list.")
    everything = parameters.get("binary_data_output") is True
    for output in requested:
        if not isinstance(output, dict) or not isinstance(output.get("name"), str):
            raise BadInput("An entry of `outputs` has no name.")
        outputs.append(output["name"])
        if _object(output.get("parameters"), "parameters").get("binary_data", everything) is True:
            binary.add(output["name"])
    number = request.get("id")
    return InferOptions(
        id=number if isinstance(number, str) else None,
        outputs=tuple(outputs),
        binary=frozenset(binary),
        all_binary=everything and not outputs,
    )


def _tensor(tensor: Any, tail: memoryview, raw_names: frozenset[str]) -> tuple[str, Array, int]:
    if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
        raise BadInput("An entry of `inputs` has no name.")
    name, datatype, shape = tensor["name"], tensor.get("datatype"), tensor.get("shape")
    if datatype not in DTYPES:
        raise input_error(
            name, f"has the datatype {datatype!r}; one of {', '.join(DTYPES)} was expected"
        )
    if (
        not isinstance(shape, list)
        or len(shape) > _MAX_NDIM
        or not all(type(length) is int and 0 <= length <= _MAX_ELEMENTS for length in shape)
    ):
        raise input_error(name, "has no `shape` as a list of lengths")
    elements = math.prod(shape)
    size = _object(tensor.get("parameters"), "parameters").get("binary_data_size")
    if size is not None:
        if type(size) is not int or not 0 <= size <= len(tail):
            raise input_error(
                name, f"has a binary_data_size of {size!r}; {len(tail)} bytes are left"
            )
        is_raw = name in raw_names
        array = _from_bytes(name, datatype, shape, elements, tail[:size], is_raw=is_raw)
        return name, array, size
    array = array_of(name, tensor.get("data"), datatype)
    if array.size != elements:
        raise input_error(name, f"has {array.size} elements; its shape {shape} needs {elements}")
    return name, array.reshape(shape), 0


def _from_bytes(
    name: str, datatype: str, shape: list[int], elements: int, raw: memoryview, *, is_raw: bool
) -> Array:
    if datatype == Datatype.BYTES:
        texts = _texts(name, raw, elements, is_raw=is_raw)
        return np.array(texts, dtype=object).reshape(shape)
    dtype = DTYPES[datatype]
    if len(raw) != elements * dtype.itemsize:
        requested = elements * dtype.itemsize
        raise input_error(
            name, f"has {len(raw)} bytes; {datatype} of the shape {shape} needs {requested}"
        )
    return np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


def _texts(name: str, raw: memoryview, elements: int, *, is_raw: bool) -> list[Any]:
    texts: list[Any] = []
    at = 0
    while at < len(raw) and len(texts) <= elements:
        length = int.from_bytes(raw[at : at + 4], "little")
        if at + 4 + length > len(raw):
            raise input_error(name, "has strings that are longer than its bytes")
        try:
            text = bytes(raw[at + 4 : at + 4 + length])
            texts.append(text if is_raw else text.decode())
        except UnicodeDecodeError:
            raise input_error(name, "holds bytes that are not UTF-8 text") from None
        at += 4 + length
    if len(texts) != elements:
        raise input_error(name, f"has {len(texts)} texts; its shape needs {elements}")
    return texts


def write_infer(
    outputs: dict[str, Array], ask: InferOptions, model: str, version: str
) -> tuple[bytes, int, Content]:
    """Return the answer, the length of its JSON (0 without binary tensors), and its content."""
    unknown = [name for name in ask.outputs if name not in outputs]
    if unknown:
        raise BadInput(
            f"There is no output {unknown[0]!r}.", next_step=f"There is: {', '.join(outputs)}."
        )
    tensors: list[dict[str, Any]] = []
    tails: list[bytes] = []
    for name in ask.outputs or outputs:
        array = _typed(outputs[name])
        tensor: dict[str, Any] = {
            "name": name,
            "datatype": _datatype(array).value,
            "shape": list(array.shape),
        }
        if ask.all_binary or name in ask.binary:
            raw = _to_bytes(name, array)
            tensor["parameters"] = {"binary_data_size": len(raw)}
            tails.append(raw)
        else:
            tensor["data"] = array.reshape(-1)
            if array.dtype.kind == "f" and np.isinf(array).any():
                tensor["parameters"] = {"warning": INFINITE}
        tensors.append(tensor)
    answer: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": tensors}
    if ask.id is not None:
        answer["id"] = ask.id
    head = dumps(answer)
    if not tails:
        return head, 0, Content.JSON
    return head + b"".join(tails), len(head), Content.BINARY


def _typed(array: Array) -> Array:
    """Return an output as an array of numbers or, where it is none, of texts and None.

    Numbers and truths with missing ones among them stay objects: `_datatype` tells their type.
    """
    if array.dtype.kind != "O" and array.dtype in DTYPES.values():
        return array
    values = [_element(value) for value in array.reshape(-1)]
    empty = np.empty(array.size, object)
    empty[:] = values if _numbers(values) else [text_of(value) for value in values]
    return empty.reshape(array.shape)


def _element(value: Any) -> Any:
    value = plain(value)
    return value.item() if isinstance(value, np.number | np.bool_) else value


def _numbers(values: Sequence[Any]) -> Datatype | None:
    """Return the type of numbers or booleans, of which some may be missing, or else None."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return Datatype.BOOL
    if kinds == {int}:
        least, most = (pick(item for item in values if item is not None) for pick in (min, max))
        if least >= -(2**63) and most < 2**63:
            return Datatype.INT64
        return Datatype.UINT64 if least >= 0 and most < 2**64 else None
    return Datatype.FP64 if kinds == {float} else None


def _datatype(array: Array) -> Datatype:
    if array.dtype.kind != "O":
        return datatype_of(array)
    return _numbers(array.reshape(-1).tolist()) or Datatype.BYTES


def _to_bytes(name: str, array: Array) -> bytes:
    if array.dtype.kind == "O" and (datatype := _numbers(array.reshape(-1).tolist())):
        if datatype != Datatype.FP64 and None in array.reshape(-1).tolist():
            raise BadInput(
                f"Output {name!r} has missing values, which a binary tensor of {datatype.value} "
                "cannot hold.",
                next_step="Ask for it as JSON.",
            )
        array = array.astype(DTYPES[datatype])
    if array.dtype.kind != "O":
        return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    texts = [(value or "").encode() for value in array.flat]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
