"""Parser of MLmodel files: flavours, signature, example. The content is untrusted.

It is read as plain YAML. Its size, depth and number of nodes are checked before anything is built,
and only text is extracted. No object that it names is ever imported or loaded.
"""

from dataclasses import dataclass, field
from typing import Any

import orjson
import yaml

from slipway.schemas.serving import BatchingMode
from slipway.schemas.truncation import shorten

BATCHING_KEY = "slipway_batching"
MAX_BYTES = 512 * 1024
_MAX_DEPTH = 30
_MAX_NODES = 20_000
_MAX_TEXT = 200
_OPENING = (yaml.SequenceStartEvent, yaml.MappingStartEvent)
_CLOSING = (yaml.SequenceEndEvent, yaml.MappingEndEvent)


class BadModelFile(Exception):
    """The MLmodel file is not valid. The message states the reason, for people."""


@dataclass(frozen=True)
class Description:
    """Content of an MLmodel file. `signature` is shaped as `SignatureOut`."""

    flavors: list[str] = field(default_factory=list)
    signature: dict[str, Any] | None = None
    example_path: str | None = None
    uuid: str = ""
    batching: str = ""


def read_mlmodel(content: bytes) -> Description:
    """Return the content of an MLmodel file. Raises BadModelFile."""
    if len(content) > MAX_BYTES:
        raise BadModelFile(f"the MLmodel file has more than {MAX_BYTES // 1024} KiB")
    try:
        text = content.decode("utf-8")
        _measure(text)
        value = yaml.load(text, Loader=_Strings)  # noqa: S506  (only strings, lists and dicts)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise BadModelFile("the MLmodel file is not YAML in UTF-8") from error
    if not isinstance(value, dict):
        raise BadModelFile("the MLmodel file is not a mapping")
    flavors = value.get("flavors")
    return Description(
        flavors=[_short_text(name) for name in flavors] if isinstance(flavors, dict) else [],
        signature=_signature(value.get("signature")),
        example_path=_example(value.get("saved_input_example_info")),
        uuid=_short_text(value.get("model_uuid")),
        batching=_batching(value.get("metadata")),
    )


class _Strings(yaml.BaseLoader):
    """YAML loader that returns every scalar as text, so that tags have no effect."""


def _measure(text: str) -> None:
    """Refuse a file that would take much time or memory to build. The parser does not recurse.

    Aliases are harmless: each is the same object again, and only known keys are read.
    """
    depth = 0
    for nodes, event in enumerate(yaml.parse(text, Loader=yaml.BaseLoader)):
        depth += isinstance(event, _OPENING) - isinstance(event, _CLOSING)
        if depth > _MAX_DEPTH or nodes > _MAX_NODES:
            raise BadModelFile(
                f"the MLmodel file is nested deeper than {_MAX_DEPTH} levels or has more than "
                f"{_MAX_NODES} parts"
            )


def _signature(value: object) -> dict[str, Any] | None:
    if not isinstance(value, dict):
        return None
    sides = {side: _columns(value.get(side)) for side in ("inputs", "outputs", "params")}
    if not (sides["inputs"] or sides["outputs"]):
        return None
    return sides


def _columns(written: object) -> list[dict[str, Any]]:
    """Return one side of a signature, which MLflow writes as JSON inside the YAML."""
    if not isinstance(written, str) or not written:
        return []
    try:
        document = orjson.loads(written)
    except orjson.JSONDecodeError as error:
        raise BadModelFile("the signature in the MLmodel file is not JSON") from error
    if not isinstance(document, list):
        return []
    return [_column(part, at) for at, part in enumerate(document)]


def _column(part: object, at: int) -> dict[str, Any]:
    if not isinstance(part, dict):
        return {"name": str(at), "type": "unknown", "required": True, "shape": None}
    tensor = part.get("tensor-spec")
    spec = tensor if isinstance(tensor, dict) else {}
    kind = spec.get("dtype") or part.get("type") or "unknown"
    shape = spec.get("shape", part.get("shape"))
    whole = isinstance(shape, list) and len(shape) <= 32 and all(type(n) is int for n in shape)
    return {
        "name": _name(part.get("name", "")),
        "type": _short_text(kind),
        "required": part.get("required", True) is not False,
        "shape": shape if whole else None,
    }


def _example(value: object) -> str | None:
    if not isinstance(value, dict):
        return None
    path = value.get("serving_input_path") or value.get("artifact_path")
    return path if isinstance(path, str) and path else None


def _batching(metadata: object) -> str:
    """Return the mode that the author stated in the metadata, or "" if missing or unknown."""
    stated = metadata.get(BATCHING_KEY) if isinstance(metadata, dict) else None
    return stated if isinstance(stated, str) and stated in list(BatchingMode) else ""


def _name(value: object) -> str:
    """Return the full name of a column. A shortened one could equal the name of another."""
    text = value if isinstance(value, str) else orjson.dumps(value, default=str).decode()
    return "".join(c for c in text if c.isprintable())


def _short_text(value: object) -> str:
    """Return text that is safe to store and show."""
    return shorten(_name(value), _MAX_TEXT)
