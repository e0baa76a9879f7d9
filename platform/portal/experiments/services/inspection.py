"""Parsing artifacts for a waiting request: small ones here, others in a confined process."""

import json
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from threading import BoundedSemaphore
from typing import IO, Any, Literal

from portal.core.confined_process import run_confined
from portal.experiments.ports import Artifact, RunDetail
from portal.experiments.results.inspection import inspect
from portal.experiments.results.tables import TableRefused
from portal.experiments.services.artifacts import read_artifact

MOST_BYTES = 64 * 1024**2
# JSON unpacks to some twenty times its size: this much does no harm within the portal.
_SMALL_BYTES = 512 * 1024
WITHIN_S = 40.0
_QUEUE_S = 5.0
_MOST_RESULT_BYTES = 48 * 1024**2
_inspecting = BoundedSemaphore(2)
Task = Literal["table", "difference", "events", "highlight"]
# The rest is done here where the files are small.
_ALWAYS_CONFINED = ("events", "highlight")


class InspectionRefused(Exception):
    """The files cannot be shown. The message is a sentence for people."""


def inspect_artifacts(
    *,
    project_id: str,
    files: Sequence[tuple[RunDetail, Artifact]],
    task: Task,
    options: dict[str, Any],
    most_bytes: int = MOST_BYTES,
    within_s: float = WITHIN_S,
) -> dict[str, Any]:
    """Return what `results.inspection` reports of artifacts.

    Of event files the first `most_bytes` are read; a larger table is refused. Raises
    InspectionRefused, also if it takes too long, or if other files are inspected already.
    """
    left, sizes = most_bytes, []
    for _, artifact in files:
        if artifact.size_bytes > left and task != "events":
            raise InspectionRefused(
                f"Tables of up to {most_bytes // 1024**2} MiB are shown; download it to see it."
            )
        sizes.append(min(artifact.size_bytes, left))
        left -= sizes[-1]
    if sum(sizes) <= _SMALL_BYTES and task not in _ALWAYS_CONFINED:
        contents = [
            b"".join(read_artifact(project_id=project_id, run=run, artifact=file, length=size))
            for (run, file), size in zip(files, sizes, strict=True)
        ]
        try:
            return inspect(task, contents, options)
        except TableRefused as refused:
            raise InspectionRefused(str(refused)) from None
    if not _inspecting.acquire(timeout=min(_QUEUE_S, within_s)):
        raise InspectionRefused("Too many files are being opened; reload the page in a moment.")
    try:
        with tempfile.TemporaryFile() as content:
            for (run, file), size in zip(files, sizes, strict=True):
                pieces = read_artifact(project_id=project_id, run=run, artifact=file, length=size)
                content.writelines(pieces)
            content.seek(0)
            order = {"task": task, "sizes": sizes, "options": options}
            return _confined(content, order, within_s)
    finally:
        _inspecting.release()


def _confined(content: IO[bytes], order: dict[str, Any], within_s: float) -> dict[str, Any]:
    try:
        done = run_confined(
            "portal.experiments.results.inspection",
            json.dumps(order),
            source=content,
            within_s=within_s,
            most_output_bytes=_MOST_RESULT_BYTES,
        )
    except subprocess.TimeoutExpired:
        raise InspectionRefused("Reading this file takes too long; download it.") from None
    if done.status:
        raise InspectionRefused(_exit_reason(done.status))
    if done.output is None:
        raise InspectionRefused("This file holds too much to show here; download it.")
    answer: dict[str, Any] = json.loads(done.output)
    if "refused" in answer:
        raise InspectionRefused(str(answer["refused"]))
    result: dict[str, Any] = answer["result"]
    return result


def _exit_reason(status: int) -> str:
    if status in (-signal.SIGXCPU, -signal.SIGKILL, 128 + signal.SIGXCPU, 128 + signal.SIGKILL):
        return "Reading this file takes too long; download it."
    return "The process that read this file died: the file is damaged, or needs too much memory."
