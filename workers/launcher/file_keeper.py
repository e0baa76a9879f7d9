"""Keeping of a task's files by its shim: when, for how long, and what the log says about it."""

import json
import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from workers.launcher.disk import DiskMeter
from workers.launcher.launch import Launch
from workers.launcher.lease import Lease
from workers.launcher.processes import living_descendants, send, uptime_s
from workers.launcher.program import Program
from workers.launcher.rank_env import base_environment
from workers.launcher.ranks import Helper, start_helper
from workers.launcher.sandbox import Sandbox

# The module is named, not imported: it is started in an interpreter of its own.
_PROGRAM: Final = "workers.launcher.kept_files"
_FOLDER: Final = "files"
_CLOCK_REALTIME_COARSE: Final = 5
_UPLOAD_S: Final = 600.0
# Other tasks of a gang wait for the end of the one that failed.
_UPLOAD_IN_GANG_S: Final = 60.0
_GRACE_S: Final = 3.0
# From then on the log says why the task still runs.
_SILENT_S: Final = 3.0
_STOP_GRACE_S: Final = 2.0
_STILL_KEPT: Final = "[slipway] The program has ended. Keeping its files takes"
_KILL_PATIENCE_S: Final = 5.0
_POLL_S: Final = 0.05
_MOST_ANSWER_BYTES: Final = 1 << 20
_NAMED_IN_LOG: Final = 20
_NAMED: Final = 100
_TEXT_LIMIT: Final = 300
_COUNTS: Final = ("kept_count", "kept_bytes", "left_out_count", "left_out_bytes")


class FileKeeper:
    """Keeps the files that the ranks of one task wrote, once they have ended."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        # The clock of file times is the kernel's, and coarser than ours.
        self._since_ns = time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) + 1
        # Processes of the task that are not the user's: the sandbox's init, and sidecars.
        self.spared: set[int] = set()
        # Returns the processes of shells, which do not end with the ranks of a kept task.
        self.shells: Callable[[], set[int]] = set

    @property
    def is_on(self) -> bool:
        """True if the job keeps anything at all."""
        return bool(self._launch.keep) and self._launch.keep_limit_bytes > 0

    def has_files(self) -> bool:
        """Return whether anything in the working folder was changed since the start."""
        meter = DiskMeter(own=(), shared=(self._launch.work_dir,), since_s=self._since_ns / 1e9)
        return any(meter.result.files for _ in meter.shared_steps()) or meter.result.files > 0

    def end_ranks(self) -> bool:
        """Kill everything of the user but shells. Returns whether nothing of it is left."""
        deadline = time.monotonic() + _KILL_PATIENCE_S
        while time.monotonic() < deadline:
            living = set(living_descendants(os.getpid())) - self.spared
            # Read afterwards, so that what a shell has started meanwhile is none of these.
            living -= self.shells()
            if not living:
                return True
            for pid in living:
                send(pid, signal.SIGKILL)
            time.sleep(0.002)
        return False

    def run(
        self,
        sandbox: Sandbox | None,
        *,
        lease: Lease,
        killed_after_s: float | None,
        failed: bool,
        log: Callable[[str], None],
    ) -> dict[str, Any]:
        """Upload, and return the report. `killed_after_s` is what is left of a stop's grace."""
        launch = self._launch
        prefix = f"{_FOLDER}/rank-{launch.first_rank}" if launch.first_rank else _FOLDER
        empty = {"prefix": prefix, "rank": launch.first_rank}
        if not self.end_ranks():
            return {**empty, "error": "its processes did not end"}
        if not self.has_files():
            return empty
        left_s = self._clock(lease, killed_after_s)
        most_s = _UPLOAD_IN_GANG_S if failed and launch.is_gang else _UPLOAD_S
        seconds = max(0.0, min(most_s, left_s()))
        request = {
            "work_dir": launch.work_dir,
            "patterns": list(launch.keep),
            "limit_bytes": launch.keep_limit_bytes,
            "since_ns": self._since_ns,
            "prefix": prefix,
            "seconds": seconds,
        }
        program = Program("own", _PROGRAM, (json.dumps(request),), launch.python, launch.root)
        try:
            helper = start_helper(launch, program, base_environment(launch), sandbox=sandbox)
        except OSError as error:
            return {**empty, "error": f"the upload could not be started: {error.strerror}"}
        text = self._answer(helper, seconds, left_s, log)
        for line in reversed(text.splitlines()):
            document = _checked(line)
            if document is not None:
                return {**document, **empty}
        return {**empty, "error": "the upload did not end in time"}

    def _clock(self, lease: Lease, killed_after_s: float | None) -> Callable[[], float]:
        """Return a function that returns the seconds until the task must be gone.

        The agent kills a task five seconds after the grace of its stop.
        """
        folder = self._launch.folder
        until_s = None
        if killed_after_s is not None or folder.stop_request() is not None:
            until_s = uptime_s() + (killed_after_s or 0.0) + _STOP_GRACE_S

        def left_s() -> float:
            nonlocal until_s
            if until_s is None and (request := folder.stop_request()) is not None:
                until_s = uptime_s() + request.grace_s + _STOP_GRACE_S
            lease_s = None if self._launch.keep_on_fence else lease.remaining_s()
            left = math.inf if until_s is None else until_s - uptime_s()
            # A lease is extended while its node reaches the portal, so only its end counts.
            return 0.0 if lease_s is not None and lease_s <= 0 else left

        return left_s

    def _answer(
        self,
        helper: Helper,
        seconds: float,
        left_s: Callable[[], float],
        log: Callable[[str], None],
    ) -> str:
        """Read what the helper writes until it ends, or is killed when its time is over."""
        pieces: list[bytes] = []
        size, is_said, began = 0, False, time.monotonic()
        deadline = began + seconds + _GRACE_S
        while True:
            try:
                piece = os.read(helper.output, 1 << 16)
            except BlockingIOError:
                if time.monotonic() > deadline or left_s() <= 0:
                    break
                if not is_said and time.monotonic() > began + _SILENT_S:
                    log(f"{_STILL_KEPT} at most {math.ceil(seconds)} s.\n")
                    is_said = True
                time.sleep(_POLL_S)
                continue
            size += len(piece)
            if not piece or size > _MOST_ANSWER_BYTES:
                break
            pieces.append(piece)
        os.close(helper.output)
        send(helper.pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(helper.pid, 0)
        return b"".join(pieces).decode("utf-8", "replace")


def _checked(line: str) -> dict[str, Any] | None:
    """Return the answer of the helper, None if it is none: code of the user may write there too."""
    try:
        document = json.loads(line)
        counts = {name: int(document[name]) for name in _COUNTS}
        kept = [_checked_item(item, reason=False) for item in document["kept"][:_NAMED]]
        left_out = [_checked_item(item, reason=True) for item in document["left_out"][:_NAMED]]
        error = str(document["error"])[:_TEXT_LIMIT]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return {**counts, "kept": kept, "left_out": left_out, "error": error}


def _checked_item(item: dict[str, Any], *, reason: bool) -> dict[str, Any]:
    result = {"path": str(item["path"])[:_TEXT_LIMIT], "size_bytes": int(item["size_bytes"])}
    return {**result, "reason": str(item["reason"])[:_TEXT_LIMIT]} if reason else result


def _sentence(reason: str) -> str:
    return f"{reason.rstrip('.')}."


def log_lines(report: dict[str, Any]) -> str:
    """Return what the log says: where files are kept, and why others are not."""
    lines = []
    kept, left_out = report.get("kept_count", 0), report.get("left_out_count", 0)
    if kept:
        size = _size_text(report.get("kept_bytes", 0))
        lines.append(f"Kept {_files(kept)} ({size}) in {report['prefix']}/ of the run's artifacts.")
    named = report.get("left_out", [])[:_NAMED_IN_LOG]
    lines += [
        f"Not kept: {item['path']} ({_size_text(item['size_bytes'])}): {_sentence(item['reason'])}"
        for item in named
    ]
    if left_out > len(named):
        lines.append(f"Not kept: {_files(left_out - len(named))} more.")
    if report.get("error"):
        lines.append(f"Files of the working folder were not kept: {report['error']}.")
    return "".join(f"[slipway] {line}\n" for line in lines)


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def _size_text(size: int) -> str:
    for unit, power in (("GB", 3), ("MB", 2), ("kB", 1)):
        if size >= 1000**power:
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size} bytes"
