"""Reading a checkpoint: its tensors in torch's format, without trusting what is in the files."""

import pickle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    Metadata,
    StorageMeta,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors

from slipway.distributed.errors import CheckpointError
from slipway.distributed.exchange import gather_json
from slipway.distributed.manifest import Manifest

# The index of a checkpoint is a pickle (torch's own format). It may refer only to these classes,
# which merely hold data.
_ALLOWED = frozenset(
    {
        ("torch.distributed.checkpoint.metadata", "ChunkStorageMetadata"),
        ("torch.distributed.checkpoint.metadata", "Metadata"),
        ("torch.distributed.checkpoint.metadata", "MetadataIndex"),
        ("torch.distributed.checkpoint.metadata", "StorageMeta"),
        ("torch.distributed.checkpoint.metadata", "TensorProperties"),
        ("torch.distributed.checkpoint.metadata", "TensorStorageMetadata"),
        ("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING"),
        ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
        ("torch.serialization", "_get_layout"),
        ("torch", "Size"),
        ("pathlib", "Path"),
        ("pathlib", "PosixPath"),
    }
)


def _memory_format(kind: object, name: str) -> _MEM_FORMAT_ENCODING:
    """Replace the getattr by which Python before 3.11.4 writes a member of an enumeration."""
    if kind is not _MEM_FORMAT_ENCODING or name not in _MEM_FORMAT_ENCODING.__members__:
        raise pickle.UnpicklingError(f"it names {name!r} of {kind!r}, which no index does")
    return _MEM_FORMAT_ENCODING[name]


class _IndexReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        memory_format = None
        if (module, name) in _ALLOWED:
            memory_format = super().find_class(module, name)
        elif (module, name) == ("builtins", "getattr"):
            memory_format = _memory_format
        elif module == "torch" and isinstance(kind := getattr(torch, name, None), torch.dtype):
            memory_format = kind
        if memory_format is None:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no index does")
        return memory_format


class _Reader(FileSystemReader):
    """torch's reader, which reads tensors as data only, with an index read the same way."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        super().__init__(folder)
        self._folder = folder
        self._manifest = manifest

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        with (self._folder / ".metadata").open("rb") as file:
            metadata = _read_index(file)
        for info in (metadata.storage_data or {}).values():
            if info.relative_path not in self._manifest.files:
                raise CheckpointError(
                    f"The index of {self._folder} names {info.relative_path!r}, which is not one "
                    "of its files.",
                    next_step="Do not use this checkpoint: somebody changed it.",
                )
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


def _read_index(file: IO[bytes]) -> Metadata:
    try:
        metadata = _IndexReader(file).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"The index of the checkpoint cannot be read: {error}.",
            next_step="Resume from an older checkpoint.",
        ) from error
    if not isinstance(metadata, Metadata):
        raise CheckpointError(
            "The index of the checkpoint is something else.",
            next_step="Resume from an older checkpoint.",
        )
    return metadata


class VerifiedCheckpoint:
    """A verified checkpoint whose tensors can be read, each rank its own parts."""

    def __init__(self, folder: Path, manifest: Manifest, group: dist.ProcessGroup) -> None:
        self.plain: Mapping[str, Any] = manifest.plain
        self._folder = folder
        self._group = group
        self._reader = _Reader(folder, manifest)
        self._index = {
            name: stored
            for name, stored in self._reader.read_metadata().state_dict_metadata.items()
            if isinstance(stored, TensorStorageMetadata)
        }

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of the stored tensors that begin with `prefix`."""
        return (name for name in self._index if name.startswith(prefix))

    def shape(self, name: str) -> tuple[torch.Size, torch.dtype]:
        """Return the whole shape and the type of a stored tensor."""
        stored = self._index[name]
        return stored.size, stored.properties.dtype

    def read(self, into: Mapping[str, torch.Tensor]) -> None:
        """Fill tensors, whole or distributed, with what is stored. Collective over the group."""
        # Share errors of each rank with all ranks, which would otherwise wait forever.
        faults = [fault for fault in gather_json(self._misfit(into), self._group) if fault]
        if faults:
            raise CheckpointError(
                f"{self._folder} does not fit the model: {faults[0]}.",
                next_step="The model or the optimizer has changed since: start anew in another "
                "folder, or load the old weights yourself.",
            )
        load_tensors(dict(into), storage_reader=self._reader, process_group=self._group)

    def _misfit(self, into: Mapping[str, torch.Tensor]) -> str | None:
        for name, tensor in into.items():
            stored = self._index.get(name)
            if stored is None:
                return f"it holds no {name}"
            if tensor.shape != stored.size:
                return f"{name} has shape {list(stored.size)}, in the model {list(tensor.shape)}"
        return None
