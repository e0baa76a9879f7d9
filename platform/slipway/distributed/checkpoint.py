"""Writing checkpoints during training, and finding the newest complete one.

All ranks write their parts at once, in torch's own format (torch.distributed.checkpoint), from a
copy taken at the call: training stops for the copy alone. A thread writes and flushes the files,
reads them back for their digests, and only when every rank has done so does the first rank write
the manifest and rename the draft folder to step-…: readers see a whole checkpoint or none.
A thread, not a process: a process that is forked or spawned amid training hung (torch 2.13).
"""

import contextlib
import dataclasses
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from slipway.distributed.engine import EngineState
from slipway.distributed.errors import CheckpointError, StrategyNotPossible
from slipway.distributed.exchange import from_first, gather_json
from slipway.distributed.manifest import (
    Manifest,
    file_facts,
    find_damage,
    read_manifest,
    saved_steps,
    sync_folder,
    write_manifest,
)
from slipway.distributed.retention import Retention
from slipway.distributed.stored import VerifiedCheckpoint
from slipway.schemas.checkpoints import FileFacts, folder_name

logger = logging.getLogger(__name__)

FOLDER_VARIABLE = "SLIPWAY_CHECKPOINT_DIR"
PERSISTENT_VARIABLE = "SLIPWAY_PERSISTENT_DIR"
# Ranks may take long to write. A rank that died is detected immediately nevertheless.
_GROUP_TIMEOUT = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Location, frequency and retention of checkpoints.

    `folder` belongs to one job alone. With several machines it has to be on storage that all of
    them share. It defaults to SLIPWAY_CHECKPOINT_DIR, then to `checkpoints` in
    SLIPWAY_PERSISTENT_DIR, which Slipway sets. With `every_steps` the trainer saves by itself.
    """

    folder: str | Path | None = None
    every_steps: int | None = None
    keep: Retention = field(default_factory=Retention)

    def __post_init__(self) -> None:
        if self.every_steps is not None and self.every_steps < 1:
            raise StrategyNotPossible(
                f"A checkpoint every {self.every_steps} steps makes no sense.",
                next_step="Give every_steps a number of at least 1, or leave it out.",
            )

    def resolve_folder(self) -> Path | None:
        """Return the folder, if one is known."""
        if folder := self.folder or os.environ.get(FOLDER_VARIABLE):
            return Path(folder)
        kept = os.environ.get(PERSISTENT_VARIABLE)
        return Path(kept) / "checkpoints" if kept else None


class Checkpointer:
    """Saves and finds checkpoints in one folder, one at a time.

    `together` says whether all ranks write parts of one state. Otherwise each that saves writes
    the whole alone (the leading worker of a parameter server).
    """

    def __init__(
        self,
        folder: Path,
        keep: Retention,
        *,
        together: bool,
        published: Callable[[int, int, Sequence[int]], None],
    ) -> None:
        """`published` receives the step and the size in bytes of each checkpoint, and the steps of
        all that are left, on the rank that wrote its manifest, by the writing thread."""
        self._folder = folder
        self._published = published
        self._keep = keep
        if together:
            self._group = dist.new_group(backend="gloo", timeout=_GROUP_TIMEOUT)
        else:
            self._group = dist.new_group(
                ranks=[dist.get_rank()],
                backend="gloo",
                timeout=_GROUP_TIMEOUT,
                use_local_synchronization=True,
            )
        self._thread: threading.Thread | None = None
        self._failure: CheckpointError | None = None

    def save(self, snapshot: EngineState, manifest: Manifest) -> None:
        """Copy the state and write it in the background.

        Waits for the checkpoint before. Raises CheckpointError when that one failed.
        """
        self.wait()
        staged = BlockingAsyncStager().stage(dict(snapshot.tensors))
        self._thread = threading.Thread(
            target=self._write_in_thread,
            args=(staged, snapshot.plain, manifest),
            name="checkpoint",
            # A daemon, so that a rank that fails exits even if the others of its group wait.
            daemon=True,
        )
        self._thread.start()

    def wait(self) -> None:
        """Wait for the last checkpoint, or raise CheckpointError if it failed."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def newest(self) -> tuple[Manifest, VerifiedCheckpoint] | None:
        """Return the newest checkpoint that is whole, None if there is none.

        Collective over all ranks, which check the digests of some of the files each. A damaged
        checkpoint is named in a warning and passed over.
        """
        rank, world = dist.get_rank(), dist.get_world_size()
        steps: list[int] = gather_json(list(saved_steps(self._folder)) if rank == 0 else [])[0]
        for step in reversed(steps):
            folder = self._folder / folder_name(step)
            manifest: Manifest | None = None
            fault: str | None = None
            try:
                manifest = read_manifest(folder)
                fault = find_damage(folder, manifest, sorted(manifest.files)[rank::world])
            except CheckpointError as error:
                fault = error.message
            faults = [value for value in gather_json(fault) if value]
            if manifest is not None and not faults:
                return manifest, VerifiedCheckpoint(folder, manifest, self._group)
            if rank == 0:
                logger.warning("Passing over checkpoint %s: %s", folder.name, faults[0])
        return None

    def _write_in_thread(
        self, tensors: Mapping[str, torch.Tensor], plain: Mapping[str, Any], manifest: Manifest
    ) -> None:
        try:
            self._write(tensors, plain, manifest)
        except Exception as error:  # noqa: BLE001 - the training thread raises it at the next call
            self._failure = CheckpointError(
                f"The checkpoint of step {manifest.step} could not be written to {self._folder}: "
                f"{error}",
                next_step="Look at the free space and the rights of the folder.",
            )
            self._failure.__cause__ = error

    def _write(
        self, tensors: Mapping[str, torch.Tensor], plain: Mapping[str, Any], manifest: Manifest
    ) -> None:
        first = dist.get_rank(self._group) == 0
        nonce = from_first(secrets.token_bytes(8), self._group).hex()
        draft = self._folder / f"draft-{manifest.step:010d}-{nonce}"
        with self._all_or_none() as faults:
            if first:
                self._folder.mkdir(parents=True, exist_ok=True)
                _remove(self._folder.glob("draft-*"))
                draft.mkdir()
        faults.check()
        with self._all_or_none() as faults:
            if not draft.is_dir():
                raise CheckpointError(
                    f"{draft} was made by the first rank, but this one does not see it.",
                    next_step="Give checkpoints a folder on storage that all machines share.",
                )
        faults.check()
        part: dict[str, Any] = {}
        with self._all_or_none() as faults:
            save_tensors(
                dict(tensors),
                storage_writer=FileSystemWriter(draft),
                process_group=self._group,
            )
            part = {"files": self._facts_of_own_files(draft), "plain": dict(plain)}
        faults.check()
        parts = gather_json(part, self._group)
        with self._all_or_none() as faults:
            if first:
                self._publish(draft, _merged(manifest, parts))
        faults.check()

    def _facts_of_own_files(self, draft: Path) -> dict[str, dict[str, Any]]:
        rank = dist.get_rank(self._group)
        items = [*draft.glob(f"__{rank}_*"), *(draft.glob(".metadata") if rank == 0 else ())]
        details = {path.name: file_facts(path) for path in items}
        return {n: {"size_bytes": f.size_bytes, "sha256": f.sha256} for n, f in details.items()}

    def _publish(self, draft: Path, manifest: Manifest) -> None:
        write_manifest(draft, manifest)
        target = self._folder / folder_name(manifest.step)
        if target.exists():
            # A damaged one that was skipped, or training was resumed from an earlier step.
            target.rename(self._folder / f"draft-{secrets.token_hex(8)}")
        draft.rename(target)
        sync_folder(self._folder)
        logger.info("Checkpoint of step %d is in %s.", manifest.step, target)
        metrics: dict[int, float | None] = {}
        for step, folder in saved_steps(self._folder).items():
            try:
                metrics[step] = read_manifest(folder).metric
            except CheckpointError:
                continue  # retained: newest() reports it, and a person may inspect it
        kept = self._keep.steps_to_keep(metrics)
        _remove(self._folder / folder_name(step) for step in metrics if step not in kept)
        _remove(self._folder.glob("draft-*"))
        size_bytes = sum(file.size_bytes for file in manifest.files.values())
        self._published(manifest.step, size_bytes, sorted(kept))

    @contextlib.contextmanager
    def _all_or_none(self) -> "Iterator[_Faults]":
        """Run a part of the work on each rank. `check()` then fails on all if it failed on one."""
        faults = _Faults(self._group)
        try:
            yield faults
        except Exception as error:  # noqa: BLE001 - check() reports it to all ranks
            faults.own_error = error


class _Faults:
    def __init__(self, group: dist.ProcessGroup) -> None:
        self.own_error: Exception | None = None
        self._group = group

    def check(self) -> None:
        text = (
            None if self.own_error is None else f"{type(self.own_error).__name__}: {self.own_error}"
        )
        items = gather_json(text, self._group)
        if self.own_error is not None:
            raise self.own_error
        for rank, fault in enumerate(items):
            if fault is not None:
                raise CheckpointError(
                    f"rank {rank} failed: {fault}", next_step="Look at the log of that rank."
                )


def _merged(manifest: Manifest, parts: list[dict[str, Any]]) -> Manifest:
    """Return the manifest with what all ranks wrote."""
    plain: dict[str, Any] = dict(manifest.plain)
    for key in ("options", "scalars"):
        plain[key] = {name: v for part in parts for name, v in part["plain"].get(key, {}).items()}
    plain["schedules"] = next(
        (part["plain"]["schedules"] for part in parts if part["plain"].get("schedules")), []
    )
    files = {n: FileFacts(**details) for part in parts for n, details in part["files"].items()}
    return dataclasses.replace(manifest, plain=plain, files=files)


def _remove(folders: Iterator[Path]) -> None:
    for folder in list(folders):
        shutil.rmtree(folder, ignore_errors=True)
