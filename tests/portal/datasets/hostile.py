"""Parquet that nobody's tool has written."""


def nested_parquet(depth: int) -> bytes:
    """Return Parquet without rows, whose schema is a group within a group within a group."""
    groups = [_element(b"s", children=1), *[_element(b"g", children=1)] * depth, _element(b"x")]
    metadata = b"\x15\x02" + b"\x19\xfc" + _varint(len(groups)) + b"".join(groups)
    metadata += b"\x16\x00" + b"\x19\x0c" + b"\x00"
    return b"PAR1" + metadata + len(metadata).to_bytes(4, "little") + b"PAR1"


def _element(name: bytes, *, children: int | None = None) -> bytes:
    """Return a SchemaElement in Thrift's compact protocol: a group, or a column of int32."""
    kind = b"\x15\x02\x25\x02" if children is None else b"\x35\x02"
    named = kind + b"\x18" + _varint(len(name)) + name
    return named + (b"" if children is None else b"\x15" + _varint(2 * children)) + b"\x00"


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*encoded, number])
