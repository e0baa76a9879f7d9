"""Reads the inputs and outputs of an ONNX file. The content is untrusted.

It is a protocol buffer message. A few fields are read and all others are skipped: neither weights
nor code enter this process. The number of fields is bounded.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from portal.registry.mlmodel import BadModelFile

_MAX_FIELDS = 300_000
_MAX_TENSORS = 1_000
_MAX_NAME_BYTES = 800
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
# onnx.TensorProto.DataType, by the names that signatures have.
_TYPES: Final = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    8: "string",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
}


@dataclass(frozen=True)
class _Field:
    """A field of a message: a number, or the position of its bytes."""

    number: int
    value: int = 0
    start: int = 0
    end: int = 0


class _Message:
    """A protocol buffer file. At most `_left` more fields are read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._left = _MAX_FIELDS

    def fields(self, start: int, end: int) -> Iterator[_Field]:
        """Yield the fields of the message between two offsets. Raises BadModelFile."""
        at = start
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise BadModelFile("the ONNX file has too many parts")
            self._file.seek(at)
            key = self._varint()
            number, wire = key >> 3, key & 7
            if wire == _VARINT:
                value = self._varint()
                at = self._file.tell()
                yield _Field(number, value=value)
                continue
            length = {_FIXED64: 8, _FIXED32: 4}.get(wire)
            if wire == _LENGTH:
                length = self._varint()
            inside = self._file.tell()
            if length is None or inside + length > end:
                raise BadModelFile("the file is not ONNX, or is truncated")
            at = inside + length
            if wire == _LENGTH:
                yield _Field(number, start=inside, end=at)

    def last_field(self, within: _Field, number: int) -> _Field | None:
        """Return the last field of that number in a message, which is the one that counts."""
        fields = [
            field for field in self.fields(within.start, within.end) if field.number == number
        ]
        return fields[-1] if fields else None

    def text(self, field: _Field | None) -> str:
        """Return the bytes of a field as a name. Raises BadModelFile."""
        if field is None or not 0 < field.end - field.start <= _MAX_NAME_BYTES:
            return ""
        self._file.seek(field.start)
        try:
            text = self._file.read(field.end - field.start).decode("utf-8")
        except UnicodeDecodeError as error:
            raise BadModelFile("a name in the ONNX file is not text") from error
        return "".join(c for c in text if c.isprintable())[:200]

    def _varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._file.read(1)
            if not byte:
                break
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return value & (2**64 - 1)
            shift += 7
        raise BadModelFile("the file is not ONNX, or is truncated")


def read_onnx(file: BinaryIO, size_bytes: int) -> dict[str, Any] | None:
    """Return the signature of an ONNX file, or None unless all values are tensors.

    Raises BadModelFile for a file that is not ONNX.
    """
    message = _Message(file)
    graph = message.last_field(_Field(0, start=0, end=size_bytes), 7)
    if graph is None or graph.end == 0:
        raise BadModelFile("the file is not ONNX: it contains no graph")
    inputs: list[_Field] = []
    outputs: list[_Field] = []
    weights: set[str] = set()
    for field in message.fields(graph.start, graph.end):
        if field.number == 5:
            weights.add(message.text(message.last_field(field, 8)))
        elif field.number in (11, 12):
            (inputs if field.number == 11 else outputs).append(field)
    if not outputs or len(inputs) + len(outputs) > 100 * _MAX_TENSORS:
        raise BadModelFile("the file is not ONNX: its graph has no outputs")
    # Old files list their weights among the inputs, too.
    taken = [
        tensor for output in inputs if (tensor := _tensor(message, output))["name"] not in weights
    ]
    given = [_tensor(message, output) for output in outputs]
    if len(taken) + len(given) > _MAX_TENSORS or any(
        not output["type"] for output in [*taken, *given]
    ):
        return None
    return {"inputs": taken, "outputs": given, "params": []}


def _tensor(message: _Message, described: _Field) -> dict[str, Any]:
    """Describe a ValueInfoProto. The type is "" if it is not a tensor."""
    name = message.text(message.last_field(described, 1))
    kind = message.last_field(described, 2)
    tensor = message.last_field(kind, 1) if kind is not None else None
    element = message.last_field(tensor, 1) if tensor is not None else None
    shape = message.last_field(tensor, 2) if tensor is not None else None
    lengths = None
    if shape is not None:
        dims = [dim for dim in message.fields(shape.start, shape.end) if dim.number == 1]
        lengths = [_length(message, dim) for dim in dims]
    return {
        "name": name,
        "type": _TYPES.get(element.value, "") if element is not None else "",
        "required": True,
        "shape": lengths if lengths is None or len(lengths) <= 16 else None,
    }


def _length(message: _Message, dim: _Field) -> int:
    """Return the length of an axis, -1 for any."""
    field = message.last_field(dim, 1)
    return field.value if field is not None and field.value < 2**31 else -1
