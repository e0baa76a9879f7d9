"""Model files of this machine on their way into the registry, where no run has logged them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from slipway.data_files import files_under
from slipway.errors import InvalidInput
from slipway.sanitize import visible
from slipway.schemas.signatures import SignatureIn

_MOST_FILES = 5_000
_READ_BYTES = 1024**2


class ModelUpload:
    """One file of a model: what `Connection.put` takes. `path` is the one below its folder."""

    digest = ""

    def __init__(self, source: Path, path: str) -> None:
        self._source = source
        self.path = path
        self.size_bytes = source.stat().st_size

    def pieces(self) -> Iterator[bytes]:
        """Yield the file from its beginning, or raise InvalidInput if it changes meanwhile."""
        left = self.size_bytes
        with self._source.open("rb") as file:
            while left and (piece := file.read(min(_READ_BYTES, left))):
                left -= len(piece)
                yield piece
        if left:
            raise InvalidInput(
                f"{visible(str(self._source))} has become shorter while it was sent.",
                field="source",
                next_step="Register it once it is written.",
            )


def is_local_path(source: object) -> bool:
    """Return whether `source` names a file or folder of this machine."""
    if isinstance(source, os.PathLike):
        return True
    return isinstance(source, str) and Path(source).expanduser().exists()


def model_files(source: str | os.PathLike[str]) -> list[ModelUpload]:
    """Return the files of a model, all of them for a folder, or raise InvalidInput."""
    model_uploads = []
    for file in files_under([Path(source)]):
        model_uploads.append(ModelUpload(file.source, file.path))
        if len(model_uploads) > _MOST_FILES:
            raise InvalidInput(
                f"A model has at most {_MOST_FILES} files.",
                field="source",
                next_step="Name the folder with the model alone, or its file.",
            )
    if not model_uploads:
        raise InvalidInput(
            "The folder is empty.", field="source", next_step="Name the file of the model."
        )
    return model_uploads


def read_signature(path: Path) -> SignatureIn:
    """Read a signature from a JSON file, or raise InvalidInput."""
    try:
        written: Any = json.loads(path.read_text("utf-8"))
        return SignatureIn.model_validate(written)
    except (OSError, ValidationError, ValueError) as error:
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            message = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        else:
            message = str(error)
        raise InvalidInput(
            f"{visible(str(path))} is no signature: {visible(message)}.",
            field="signature",
            next_step='For example: {"inputs": [{"name": "x", "type": "float32", '
            '"shape": [-1, 64]}], "outputs": []}',
        ) from None
