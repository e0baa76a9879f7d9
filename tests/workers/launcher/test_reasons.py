"""From what was seen to a reason and a sentence."""

import signal
from typing import Any

import pytest

from workers.launcher.exit_reasons import Evidence, RankEnding, judge, over_disk
from workers.launcher.task_socket import Failure

GIB = 1024**3
TRACEBACK = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    raise ValueError("no rows")
ValueError: no rows
"""
CHAINED = """Traceback (most recent call last):
  File "train.py", line 5, in <module>
    row["id"]
    ~~~^^^^^^
KeyError: 'id'
"""


def ending(rank: int = 0, **changes: Any) -> RankEnding:
    """A rank that ended with status 1; say what is different."""
    return RankEnding(**{"rank": rank, "exit_code": 1, "seen_at_ns": 100, **changes})


def failure(kind: str, message: str, *, rank: int = 0, at_ns: int = 100, **more: Any) -> Failure:
    """What a launcher tells of an exception."""
    return Failure(rank=rank, type=kind, message=message, at_ns=at_ns, **more)


def seen(*endings: RankEnding, **changes: Any) -> Evidence:
    """Evidence of a task with 2 GiB."""
    fields: dict[str, Any] = {"world_size": len(endings), "memory_limit_bytes": 2 * GIB}
    return Evidence(endings=list(endings), **{**fields, **changes})


def test_the_rank_that_failed_first_is_named() -> None:
    late = ending(0, failure=failure("ValueError", "late", at_ns=200))
    early = ending(1, failure=failure("KeyError", "early", rank=1, at_ns=150))
    verdict = judge(seen(late, early))
    assert verdict.first is early
    assert "Rank 1" in verdict.message


@pytest.mark.parametrize(
    "complaint",
    [
        "[pair.cc:553] Connection closed by peer [127.0.0.1]:52417",
        "Connection reset by peer",
        "NCCL error: ncclRemoteError: remote process exited",
        "DistBackendError: rank 3 is gone",
    ],
)
def test_one_that_only_lost_its_peer_is_never_the_first(complaint: str) -> None:
    victim = ending(0, failure=failure("RuntimeError", complaint, at_ns=10))
    culprit = ending(1, exit_code=None, signal=signal.SIGKILL, seen_at_ns=500)
    assert judge(seen(victim, culprit)).first is culprit
    assert judge(seen(victim)).first is victim


def test_who_lost_ranks_of_another_node_is_not_to_blame() -> None:
    cut = "[unbound_buffer.cc:78] Timed out waiting 5000ms for recv operation to complete"
    victim = ending(0, failure=failure("RuntimeError", cut))
    verdict = judge(seen(victim, world_size=2))
    assert verdict.reason == "peer_failed"
    assert "Rank 0 lost its connection to ranks on other nodes" in verdict.message
    assert judge(seen(victim)).reason == "exit"
    never = "The client socket has timed out after 2000ms while trying to connect to (10.0.0.1, 9)."
    alone = ending(1, failure=failure("torch.distributed.DistNetworkError", never))
    assert judge(seen(alone, world_size=2)).reason == "world_size"
    own = ending(1, failure=failure("ValueError", "no such column", at_ns=900))
    assert judge(seen(victim, own, world_size=4)).reason == "exit"


def test_what_was_done_to_a_task_comes_before_what_followed() -> None:
    failed = ending(0)
    assert judge(seen(failed, stop_reason="budget")).reason == "budget"
    assert judge(seen(failed, stop_reason="user", fenced_after_s=1.0)).reason == "fenced"
    assert judge(seen(failed, hung_for_s=60.0)).reason == "hang"
    assert judge(seen(failed, memory_over_bytes=3 * GIB)).message == (
        "The task used 3.0 GiB, more than its 2.0 GiB."
    )


def test_a_kill_with_an_oom_event_is_out_of_memory() -> None:
    killed = ending(0, exit_code=None, signal=signal.SIGKILL)
    assert judge(seen(killed, oom_kills=1)).reason == "oom"
    assert judge(seen(killed)).reason == "signal"
    # A child of a rank was killed, and the rank ended for want of it.
    assert judge(seen(ending(0), oom_kills=1)).reason == "oom"


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        (failure("MemoryError", ""), "oom"),
        (failure("OutOfMemoryError", "CUDA out of memory."), "gpu_oom"),
        (failure("RuntimeError", "[enforce] DefaultCPUAllocator: can't allocate memory"), "oom"),
        (failure("ModuleNotFoundError", "No module named 'x'"), "import_error"),
        (failure("OSError", "[Errno 28] No space left on device", errno=28), "disk_full"),
        (failure("OSError", "[Errno 27] File too large: 'x'", errno=27), "disk_full"),
        (failure("RuntimeError", "PytorchStreamWriter: No space left on device"), "disk_full"),
        (failure("DistStoreError", "Timed out. 1/2 clients joined."), "world_size"),
        (failure("ValueError", "world_size 3 is not divisible by 2"), "world_size"),
        (failure("ValueError", "learning rate"), "exit"),
    ],
)
def test_exceptions_are_read(reported: Failure, reason: str) -> None:
    assert judge(seen(ending(0, failure=reported))).reason == reason


@pytest.mark.parametrize(
    ("tail", "reason", "message"),
    [
        ("Traceback\nModuleNotFoundError: No module named 'x'\n", "import_error", "'x'"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried\n", "gpu_oom", "Tried"),
        ("cp: error writing 'x': No space left on device\n", "disk_full", "cp: error"),
        ("cp: error writing 'x': File too large\n", "disk_full", "limit of 3.0 GiB"),
        ("something\nlast words\n", "exit", "last words"),
        (f"{TRACEBACK}View run at http://127.0.0.1/\n", "exit", "status 1: ValueError: no rows"),
        (f"{TRACEBACK}\nDuring handling, another:\n\n{CHAINED}bye\n", "exit", "KeyError: 'id'"),
        ("", "exit", "status 1."),
    ],
)
def test_output_is_read_where_no_exception_was_told(tail: str, reason: str, message: str) -> None:
    verdict = judge(seen(ending(0), tails={0: tail}, disk_limit_bytes=3 * GIB))
    assert verdict.reason == reason
    assert message in verdict.message


def test_a_task_that_holds_too_much_disk_is_told_how_much() -> None:
    killed = ending(0, exit_code=None, signal=signal.SIGKILL)
    verdict = judge(seen(killed, disk_over=over_disk(4 * GIB, 3 * GIB)))
    assert verdict.reason == "disk_full"
    assert verdict.message == (
        "The task used 4.0 GiB on the node's disk, more than its limit of 3.0 GiB."
    )
    too_deep = judge(seen(killed, disk_over=over_disk(None, 3 * GIB)))
    assert (too_deep.reason, "nested too deep" in too_deep.message) == ("disk_full", True)


def test_a_file_at_its_limit_ends_a_program_by_a_signal() -> None:
    killed = ending(0, exit_code=None, signal=signal.SIGXFSZ)
    verdict = judge(seen(killed, disk_limit_bytes=3 * GIB))
    assert (verdict.reason, "limit of 3.0 GiB" in verdict.message) == ("disk_full", True)


def test_a_stop_says_why_it_was_asked() -> None:
    killed = ending(0, exit_code=None, signal=signal.SIGTERM)
    assert judge(seen(killed, stop_reason="user")).message == "Stopped on request."
    stopped = judge(seen(killed, stop_reason="disk_full", stop_message="The disk ran short."))
    assert (stopped.reason, stopped.message) == ("disk_full", "The disk ran short.")


def test_no_failure_is_completed() -> None:
    assert judge(seen(ending(0, exit_code=0), ending(1, exit_code=0))).reason == "completed"


def test_lines_that_libraries_print_at_the_end_do_not_hide_the_error() -> None:
    tail = (
        "error: no rows in data.csv\n"
        "🏃 View run train-1 at: http://127.0.0.1/#/experiments/1/runs/2\n"
        "🧪 View experiment at: http://127.0.0.1/#/experiments/1\n"
    )
    verdict = judge(seen(ending(0), tails={0: tail}))
    assert verdict.message == "Rank 0 exited with status 1: error: no rows in data.csv"
