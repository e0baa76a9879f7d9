"""The task that has to end when the disk of a node runs short."""

from itertools import pairwise

from workers.launcher.disk_watch import DiskReport
from workers.node_agent.disk_guard import History, offending_task
from workers.node_agent.disk_limits import DiskLimits

GIB = 1024**3
LIMITS = DiskLimits(capacity_bytes=100 * GIB, task_bytes=25 * GIB, reserve_bytes=2 * GIB)
NOW_S = 10_000.0


def history(*held_gib: float, written_gib: float = 0.0, started_s: float = 100.0) -> History:
    """A task that held so much, measured every ten seconds until now."""
    made = History()
    first_s = NOW_S - 10 * (len(held_gib) - 1)
    for number, held in enumerate(held_gib):
        part = number / max(1, len(held_gib) - 1)
        written = int(written_gib * part * GIB)
        made.add(DiskReport(first_s + 10 * number, started_s, int(held * GIB), 10, written))
    return made


def blamed(hidden_gib: float = 0.0, **tasks: History) -> str | None:
    return offending_task(tasks, LIMITS, is_bytes=True, hidden_bytes=int(hidden_gib * GIB))


def test_what_grew_most_lately_ends_and_not_what_is_largest() -> None:
    assert blamed(steady=history(20, 20, 20), growing=history(1, 2, 3)) == "growing"


def test_growth_of_long_ago_is_forgotten() -> None:
    old = history(*range(1, 12), *[11.0] * 8)
    assert blamed(old=old, growing=history(1, 1.5)) == "growing"
    times = [report.at_s for report in old.reports]
    assert all(first < second for first, second in pairwise(times))


def test_a_young_task_began_with_nothing() -> None:
    young = history(5, started_s=NOW_S - 2)
    assert blamed(old=history(20, 20.2), young=young) == "young"


def test_a_task_that_only_rewrites_is_not_to_blame_for_what_others_fill() -> None:
    rewriting = history(5, 5, 5, written_gib=3)
    assert blamed(hidden_gib=10, rewriting=rewriting) is None
    assert blamed(hidden_gib=0, rewriting=rewriting) is None


def test_a_little_growth_is_not_to_blame_for_what_others_fill() -> None:
    assert blamed(hidden_gib=50, small=history(0, 0.2)) is None
    assert blamed(hidden_gib=1, small=history(0, 0.2)) == "small"


def test_what_no_measurement_sees_is_blamed_on_the_task_that_wrote_it() -> None:
    hiding = history(0, 0, 0, written_gib=9)
    assert blamed(hidden_gib=9, hiding=hiding, small=history(1, 1)) == "hiding"


def test_without_growth_an_outsized_task_ends_and_small_ones_do_not() -> None:
    assert blamed(large=history(40, 40), small=history(1, 1)) == "large"
    assert blamed(small=history(1, 1), other=history(2, 2)) is None
    assert blamed() is None
