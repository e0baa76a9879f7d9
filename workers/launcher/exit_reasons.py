"""Exit reasons: maps the evidence about an ended task to a reason code and one sentence.

The codes are those of `slipway.schemas.workloads.ReasonCode`. They are repeated here because this
code runs in environments that contain only Python.
"""

import re
import signal
from dataclasses import dataclass, field
from typing import Final

from workers.launcher.task_socket import Failure

COMPLETED: Final = "completed"
EXIT: Final = "exit"
SIGNAL: Final = "signal"
OUT_OF_MEMORY: Final = "oom"
OUT_OF_GPU_MEMORY: Final = "gpu_oom"
IMPORT_ERROR: Final = "import_error"
HANG: Final = "hang"
WORLD_SIZE: Final = "world_size"
DISK_FULL: Final = "disk_full"
START_FAILED: Final = "start_failed"
PEER_FAILED: Final = "peer_failed"
FENCED: Final = "fenced"
PREEMPTED: Final = "preempted"
ENGINE_ENDED: Final = "The engine ended the allocation."

_ENOSPC, _EDQUOT, _EFBIG = 28, 122, 27
_MESSAGE_LIMIT: Final = 1000
# Messages of a rank that fails only because it lost a peer.
_VICTIM = re.compile(
    r"connection (closed|reset) by peer|connection reset|broken pipe|remote process exited"
    r"|connectFullMesh failed|socket closed|nccl (remote|communicator) |ncclRemoteError"
    r"|ncclSystemError|another rank|DistBackendError|DistNetworkError|recvValue failed"
    r"|sendBytes failed|Application timeout caused pair closure"
    r"|timed out waiting \d+ ?ms for (send|recv) operation",
    re.IGNORECASE,
)
_IN_OUTPUT: Final = (
    (
        OUT_OF_GPU_MEMORY,
        re.compile(r"CUDA out of memory|torch\.(cuda\.)?OutOfMemoryError|HIP out of"),
    ),
    (DISK_FULL, re.compile(r"No space left on device|Disk quota exceeded|File too large")),
    (
        OUT_OF_MEMORY,
        re.compile(r"^MemoryError|DefaultCPUAllocator: (can't|not enough)|bad_alloc", re.MULTILINE),
    ),
    (WORLD_SIZE, re.compile(r"\d+/\d+ clients joined|environment variable WORLD_SIZE expected")),
    (IMPORT_ERROR, re.compile(r"^(ModuleNotFoundError|ImportError): .*", re.MULTILINE)),
)
_TYPES: Final = {
    "MemoryError": OUT_OF_MEMORY,
    "OutOfMemoryError": OUT_OF_GPU_MEMORY,
    "ModuleNotFoundError": IMPORT_ERROR,
    "ImportError": IMPORT_ERROR,
}
# The last line of a traceback, however much a library printed after it.
_EXCEPTION = re.compile(
    r"^Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)$", re.MULTILINE
)
# Lines that libraries print as the process ends: after the cause, and never the cause.
_EPILOGUE = re.compile(
    r"^(\W* ?View (run|experiment)\b.*\bat:? \S+|wandb: .*|Exception ignored in.*"
    r"|.*resource_tracker.*leaked.*|\s+warnings\.warn\(.*)$"
)
_EXIT: Final = "SystemExit"
_WORLD = re.compile(
    r"world[ _]?size|clients joined|client socket has (timed out|failed)"
    r"|is not divisible by .*(ranks|processes)",
    re.IGNORECASE,
)
_FILE_TOO_LARGE: Final = "File too large"
_SENTENCES: Final = {
    OUT_OF_MEMORY: "Rank {rank} ran out of memory{limit}: {detail}",
    OUT_OF_GPU_MEMORY: "Rank {rank} ran out of GPU memory: {detail}",
    IMPORT_ERROR: "Rank {rank} could not import a module: {detail}",
    WORLD_SIZE: "The ranks could not form the requested world of {world_size}: {detail}",
    DISK_FULL: "Rank {rank} could not write because the disk is full: {detail}",
}


@dataclass(frozen=True)
class RankEnding:
    """End of one rank, as observed by the shim. Either `exit_code` or `signal` is set."""

    rank: int
    exit_code: int | None = None
    signal: int | None = None
    failure: Failure | None = None
    seen_at_ns: int = 0

    @property
    def failed(self) -> bool:
        """True if the rank ended with anything but status 0."""
        return self.exit_code != 0

    @property
    def failed_at_ns(self) -> int:
        """Time of the failure, as the rank reported it or else as the shim saw it."""
        return self.failure.at_ns if self.failure else self.seen_at_ns


@dataclass(frozen=True)
class Evidence:
    """All data that the shim has when the last rank has ended."""

    endings: list[RankEnding]
    world_size: int
    memory_limit_bytes: int
    oom_kills: int = 0
    memory_over_bytes: int | None = None
    disk_limit_bytes: int = 0
    disk_over: str | None = None
    stop_reason: str | None = None
    stop_message: str = ""
    fenced_after_s: float | None = None
    hung_for_s: float | None = None
    tails: dict[int, str] = field(default_factory=dict)

    @property
    def has_other_tasks(self) -> bool:
        """True if other tasks of the gang run ranks too."""
        return self.world_size > len(self.endings)


@dataclass(frozen=True)
class Verdict:
    """The reason, a sentence for people, and the rank that failed first, if one did."""

    reason: str
    message: str
    first: RankEnding | None = None


def gibibytes(count: int) -> str:
    """A size for people."""
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 else f"{count / 1024**2:.0f} MiB"


def first_to_fail(endings: list[RankEnding], tails: dict[int, str]) -> RankEnding | None:
    """Return the rank that failed first, preferring ranks that did not merely lose a peer."""
    failed = [ending for ending in endings if ending.failed]
    if not failed:
        return None
    return min(failed, key=lambda ending: (_is_victim(ending, tails), ending.failed_at_ns))


def _is_victim(ending: RankEnding, tails: dict[int, str]) -> bool:
    if ending.failure is not None:
        return bool(_VICTIM.search(f"{ending.failure.type}: {ending.failure.message}"))
    return ending.signal is None and bool(_VICTIM.search(tails.get(ending.rank, "")[-2000:]))


def _has_lost_peers(ending: RankEnding, tails: dict[int, str]) -> bool:
    """Return whether the rank had joined its peers and then lost them."""
    message = ending.failure.message if ending.failure else tails.get(ending.rank, "")[-2000:]
    return _is_victim(ending, tails) and not _WORLD.search(message)


def judge(evidence: Evidence) -> Verdict:
    """Name the reason. What was done to the task comes before what the task did in consequence."""
    first = first_to_fail(evidence.endings, evidence.tails)
    if evidence.fenced_after_s is not None:
        return Verdict(FENCED, _fenced(evidence.fenced_after_s))
    if evidence.stop_reason is not None:
        return Verdict(evidence.stop_reason, evidence.stop_message or "Stopped on request.")
    if evidence.disk_over is not None:
        return Verdict(DISK_FULL, evidence.disk_over, first)
    if evidence.memory_over_bytes is not None:
        used, limit = map(gibibytes, (evidence.memory_over_bytes, evidence.memory_limit_bytes))
        return Verdict(OUT_OF_MEMORY, f"The task used {used}, more than its {limit}.", first)
    if evidence.hung_for_s is not None:
        return Verdict(HANG, _hang_message(evidence.hung_for_s))
    if first is None:
        return Verdict(COMPLETED, "All ranks exited with status 0.")
    if evidence.oom_kills and (first.signal == signal.SIGKILL or first.signal is None):
        limit = gibibytes(evidence.memory_limit_bytes)
        sentence = f"The kernel killed rank {first.rank}: the task used all of its {limit}."
        return Verdict(OUT_OF_MEMORY, sentence, first)
    if first.signal is not None and first.failure is None:
        return _by_signal(first, evidence.disk_limit_bytes)
    if evidence.has_other_tasks and _has_lost_peers(first, evidence.tails):
        return _by_peers(first, evidence)
    return _by_exit(first, evidence)


def _fenced(after_s: float) -> str:
    return (
        f"The node could not reach the portal for {after_s:.0f} s, so it stopped the task: the "
        "portal may have restarted it elsewhere."
    )


def over_disk(held_bytes: int | None, limit_bytes: int) -> str:
    """Return the message for a task over its disk limit. None means that it cannot be measured."""
    limit = gibibytes(limit_bytes)
    if held_bytes is None:
        return (
            "The task's folders are nested too deeply to check them against its limit of "
            f"{limit} on the node's disk."
        )
    held = gibibytes(held_bytes)
    return f"The task used {held} on the node's disk, more than its limit of {limit}."


def _hang_message(for_s: float) -> str:
    return (
        f"No rank wrote output or finished a step for {for_s:.0f} s. The stack trace of each "
        "rank is at the end of its log."
    )


def _by_signal(first: RankEnding, disk_limit_bytes: int) -> Verdict:
    assert first.signal is not None  # noqa: S101 - the caller checked it
    if first.signal == signal.SIGXFSZ:
        return Verdict(DISK_FULL, _file_too_large(first.rank, disk_limit_bytes), first)
    name = _signal_name(first.signal)
    hint = {
        "SIGSEGV": " It accessed invalid memory; the usual cause is a compiled extension.",
        "SIGILL": " It used an instruction that this CPU does not support.",
        "SIGBUS": " Shared memory or a mapped file ran out of space.",
        "SIGKILL": (
            " It was killed by somebody, or by the kernel because the machine ran out of memory."
        ),
    }.get(name, "")
    return Verdict(SIGNAL, f"Rank {first.rank} was killed by {name}.{hint}", first)


def _file_too_large(rank: int, limit_bytes: int) -> str:
    limit = gibibytes(limit_bytes)
    return f"A file of rank {rank} reached the task's limit of {limit} on the node's disk."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _by_peers(first: RankEnding, evidence: Evidence) -> Verdict:
    tail = evidence.tails.get(first.rank, "")
    _, detail = _read_failure(first.failure) if first.failure else _read_output(tail)
    sentence = f"Rank {first.rank} lost its connection to ranks on other nodes: {_shorten(detail)}"
    return Verdict(PEER_FAILED, sentence, first)


def _by_exit(first: RankEnding, evidence: Evidence) -> Verdict:
    tail = evidence.tails.get(first.rank, "")
    reason, detail = _read_failure(first.failure) if first.failure else _read_output(tail)
    if reason is None:
        ended = "failed" if first.exit_code is None else f"exited with status {first.exit_code}"
        message = f": {_shorten(detail)}" if detail else "."
        sentence = f"Rank {first.rank} {ended}{message}"
        return Verdict(EXIT, sentence, first)
    if reason == DISK_FULL and _FILE_TOO_LARGE in detail and evidence.disk_limit_bytes:
        return Verdict(reason, _file_too_large(first.rank, evidence.disk_limit_bytes), first)
    sentence = _SENTENCES[reason].format(
        rank=first.rank,
        detail=_shorten(detail),
        world_size=evidence.world_size,
        limit=f" (the task can use {gibibytes(evidence.memory_limit_bytes)})",
    )
    return Verdict(reason, sentence, first)


def _read_failure(failure: Failure) -> tuple[str | None, str]:
    detail = f"{failure.type}: {failure.message}" if failure.message else failure.type
    if failure.type == _EXIT:
        detail = failure.message
    name = failure.type.rpartition(".")[2]
    if name in _TYPES:
        return _TYPES[name], detail
    if failure.errno in (_ENOSPC, _EDQUOT, _EFBIG):
        return DISK_FULL, detail
    for reason, pattern in _IN_OUTPUT:
        if reason != IMPORT_ERROR and pattern.search(failure.message):
            return reason, detail
    return (WORLD_SIZE if _WORLD.search(failure.message) else None), detail


def _read_output(tail: str) -> tuple[str | None, str]:
    for reason, pattern in _IN_OUTPUT:
        match = None
        for match in pattern.finditer(tail):  # noqa: B007 - the last match counts
            pass
        if match is not None:
            return reason, tail[tail.rfind("\n", 0, match.start()) + 1 :].splitlines()[0]
    exceptions = _EXCEPTION.findall(tail)
    lines = [line for line in tail.splitlines() if line.strip()]
    own_lines = [line for line in lines if not _EPILOGUE.match(line)]
    return None, (exceptions or own_lines or lines or [""])[-1]


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_LIMIT else f"{line[: _MESSAGE_LIMIT - 1]}…"
