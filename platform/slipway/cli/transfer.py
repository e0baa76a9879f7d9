"""File transfers with progress on standard error, written atomically."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

from slipway.cli.exits import UsageMistake
from slipway.cli.output import console
from slipway.cli.session import Session


class Bar:
    """A progress bar, hidden without a terminal."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task

    def show(self, done_bytes: int) -> None:
        """Update the number of transferred bytes."""
        self._progress.update(self._task, completed=done_bytes)

    def show_file(self, path: str, done_bytes: int, total_bytes: int) -> None:
        """Show the progress of one file of several, by its path."""
        self._progress.update(self._task, description=path, completed=done_bytes, total=total_bytes)


@contextmanager
def progress_bar(session: Session, label: str, *, total_bytes: int | None) -> Iterator[Bar]:
    """Show a bar on standard error while the block runs."""
    silent = session.output.as_json or session.output.quiet or not sys.stderr.isatty()
    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        console=console(sys.stderr),
        disable=silent,
        transient=True,
    ) as progress:
        yield Bar(progress, progress.add_task(label, total=total_bytes))


def receive(session: Session, content: Iterable[bytes], file: BinaryIO, *, label: str) -> int:
    """Copy `content` to `file` with a progress bar, and return the number of bytes."""
    received_bytes = 0
    total = getattr(content, "size_bytes", None)
    with progress_bar(session, label, total_bytes=total) as bar:
        for chunk in content:
            file.write(chunk)
            received_bytes += len(chunk)
            bar.show(received_bytes)
    return received_bytes


def receive_file(
    session: Session, content: Iterable[bytes], path: Path, *, label: str, option: str = "--output"
) -> int:
    """Write `content` to `path` atomically, and return the number of bytes."""
    part = path.with_name(f"{path.name}.part-{os.getpid()}")
    try:
        with part.open("wb") as file:
            size_bytes = receive(session, content, file, label=label)
        part.replace(path)
    except OSError as error:
        raise UsageMistake(
            f"The file {path} cannot be written: {error.strerror}.",
            field=option.lstrip("-"),
            next_step=f"Choose another file with {option}.",
        ) from None
    finally:
        part.unlink(missing_ok=True)
    return size_bytes
