"""The end of a task: the verdict on the evidence that its shim has, and the report of it."""

import time
from collections.abc import Sequence
from typing import Final

from workers.launcher import exit_reasons
from workers.launcher.launch import Launch
from workers.launcher.ranks import Rank
from workers.launcher.shutdown import Shutdown
from workers.launcher.usage import UsageMeter

_PATIENCE_S: Final = 5.0


def drain(ranks: Sequence[Rank]) -> None:
    """Move what the ranks have written last to their logs."""
    deadline = time.monotonic() + _PATIENCE_S
    for rank in ranks:
        while rank.output_open and time.monotonic() < deadline and rank.drain():
            pass


def has_failed(ranks: Sequence[Rank]) -> bool:
    """Return whether a rank has ended with anything but status 0."""
    return any(rank.ending().failed for rank in ranks)


def verdict_of(launch: Launch, ranks: Sequence[Rank], ending: Shutdown) -> exit_reasons.Verdict:
    """Return why a task has ended, from all that is known of it."""
    evidence = exit_reasons.Evidence(
        endings=[rank.ending() for rank in ranks],
        world_size=launch.world_size,
        memory_limit_bytes=launch.memory_bytes,
        oom_kills=launch.cgroup.oom_kills(),
        memory_over_bytes=ending.memory_over_bytes,
        disk_limit_bytes=launch.disk_bytes,
        disk_over=ending.disk_over,
        stop_reason=ending.stop_reason,
        stop_message=ending.stop_message,
        fenced_after_s=ending.fenced_after_s,
        hung_for_s=ending.hung_for_s,
        tails={rank.rank: rank.tail_text() for rank in ranks},
    )
    return exit_reasons.judge(evidence)


def end_report(
    launch: Launch, ranks: Sequence[Rank], ending: Shutdown, usage: UsageMeter
) -> dict[str, object]:
    """Return the fields of the event that reports the end."""
    verdict = verdict_of(launch, ranks, ending)
    first = verdict.first or ranks[0].ending()
    tails = {rank.rank: rank.tail_text() for rank in ranks}
    return {
        "reason": verdict.reason,
        "message": verdict.message,
        "exit_code": first.exit_code,
        "ranks": [
            {"rank": rank.rank, "exit_code": rank.exit_code, "signal": rank.signal}
            for rank in ranks
        ],
        "memory_peak_bytes": max(usage.peak_bytes, launch.cgroup.memory_peak() or 0),
        "memory_limit_bytes": launch.memory_bytes,
        "cpu_seconds": round(usage.cpu_seconds, 3),
        "log_tail": tails[first.rank],
    }
