"""Failed tasks that stay for shells, by a real agent: for how long, and what ends them."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from slipway.schemas.agent import TaskReport
from slipway.schemas.workloads import ReasonCode, Resources
from tests.workers.fake_portal import Key
from tests.workers.machines import Site, eventually, is_alive
from tests.workers.shells import Shell, shell_path
from workers.launcher.atomic_files import read_json
from workers.launcher.cgroup import Cgroup

_FAILS = """
import os, pathlib, sys
pathlib.Path("state.txt").write_text("left behind")
print("rank", os.environ["RANK"], flush=True)
raise ValueError("loss is NaN")
"""
# A process that has left the rank behind, and one that does not end when it is asked to.
_LEAVES_PROCESSES = """
import os, signal, subprocess, sys, time
rank = int(os.environ["RANK"])
subprocess.Popen(["sleep", "987654"], start_new_session=True)
if rank:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("waits", flush=True)
    time.sleep(1000)
while not os.path.exists("go-on"):
    time.sleep(0.01)
sys.exit(7)
"""


def _kept(site: Site, script: str = _FAILS, *, keep_failed_s: float = 600, **changes: Any) -> Key:
    key = site.run(script, shells=True, keep_failed_s=keep_failed_s, **changes)
    eventually(lambda: "failed" in site.portal.state.kinds(key), what="the failure", within_s=60)
    return key


def _failure(site: Site, key: Key) -> TaskReport:
    (report,) = [it for it in site.portal.state.reports[key] if it.kind == "failed"]
    return report


def _commands(site: Site, key: Key) -> str:
    lines = []
    for pid in site.machine.processes(key):
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_text())
        except OSError:
            continue
    return "\n".join(lines)


def test_a_failed_task_stays_for_shells_and_reports_its_failure_at_once(site: Site) -> None:
    key = _kept(site, env={"MINE": "yes"})
    failure = _failure(site, key)
    assert (failure.reason, failure.exit_code) == ("exit", 1)
    assert failure.message == "Rank 0 exited with status 1: ValueError: loss is NaN"
    assert "loss is NaN" in failure.log_tail
    # Nothing is added to its log, which says how to get in.
    eventually(lambda: (*key, 0) in site.portal.state.ended_logs, what="the end of the log")
    assert f"kept for 10 min. Open a shell in it: slipway job shell w-{key[0]}" in (
        site.portal.state.log_of(key)
    )
    shell = Shell(shell_path(site, key))
    seen = shell.run("cat state.txt; echo $MINE $RANK $SLIPWAY_TASK_SOCKET")
    assert "left behind" in seen
    assert "yes 0 " in seen
    # A script that runs in the shell again is not the job's.
    assert "loss is NaN" in shell.run("python train.py")
    site.portal.state.stop(key, ReasonCode.PEER_FAILED)
    end = site.end_of(key)
    assert (end.reason, end.message, end.exit_code) == ("exit", failure.message, 1)
    assert end.kept_end == "Stopped on request."
    assert shell.to_end()["reason"] == "task_ended"
    eventually(lambda: not shell_path(site, key).exists())
    assert site.portal.state.kinds(key).count("failed") == 1
    site.portal.state.forget(key)
    eventually(lambda: not site.machine.state(key).path.exists())


def test_the_time_of_a_kept_task_is_over(site: Site) -> None:
    key = _kept(site, keep_failed_s=1.0)
    shell = Shell(shell_path(site, key))
    end = site.end_of(key)
    assert end.kept_end == "Its time is over."
    assert shell.to_end()["reason"] == "task_ended"
    eventually(lambda: not is_alive(site.machine.shim(key).pid))


def test_the_processes_of_the_ranks_end_and_shells_stay(site: Site) -> None:
    key = site.run(_LEAVES_PROCESSES, procs=2, shells=True, keep_failed_s=600)
    eventually(lambda: "waits" in site.portal.state.log_of(key, 1))
    before = Shell(shell_path(site, key), rank=1)
    before.run("sleep 123456 & echo")
    (site.machine.state(key).path.parent / "work" / "go-on").touch()
    eventually(lambda: "failed" in site.portal.state.kinds(key), what="the failure")
    assert (_failure(site, key).exit_code, _failure(site, key).reason) == (7, "exit")
    commands = _commands(site, key)
    assert "987654" not in commands
    assert "train.py" not in commands
    assert "123456" in commands
    assert "RANK=1" in before.run("echo RANK=$RANK")
    assert "RANK=0" in Shell(shell_path(site, key), name="shl_2").run("echo RANK=$RANK")
    site.portal.state.stop(key)
    site.end_of(key)
    eventually(lambda: not is_alive(site.machine.shim(key).pid))


@pytest.mark.thorough
def test_tasks_that_did_not_fail_by_themselves_are_not_kept(site: Site) -> None:
    options: dict[str, Any] = {"shells": True, "keep_failed_s": 600}
    succeeded = site.run_to_end("print(1)", **options)
    assert succeeded.reason == "completed"
    key = site.run("import time\nprint('up', flush=True)\ntime.sleep(1000)", **options)
    eventually(lambda: "up" in site.portal.state.log_of(key))
    site.portal.state.stop(key)
    assert site.end_of(key).reason == "user"
    full = site.run_to_end("raise OSError(28, 'No space left on device')", **options)
    assert full.reason == "disk_full"
    log = "is not kept: the node needs the disk space"
    eventually(lambda: log in site.portal.state.log_of((full.task_id, full.epoch)))
    for end in (succeeded, full):
        assert "failed" not in site.portal.state.kinds((end.task_id, end.epoch))
    assert "failed" not in site.portal.state.kinds(key)


@pytest.mark.thorough
def test_a_task_that_hangs_is_kept(site: Site) -> None:
    key = _kept(site, "import time\ntime.sleep(1000)", hang_after_s=1.0)
    assert _failure(site, key).reason == "hang"
    assert "alive" in Shell(shell_path(site, key)).run("echo ali''ve")
    site.portal.state.stop(key)
    assert site.end_of(key).reason == "hang"


@pytest.mark.thorough
def test_a_kept_task_outlives_its_agent_and_not_its_supervisor(site: Site) -> None:
    key = _kept(site)
    shell = Shell(shell_path(site, key))
    shell.run("touch from-the-shell")
    site.machine.kill()
    assert "from-the-shell" in shell.run("ls")
    site.machine.start().connected()
    assert "from-the-shell" in shell.run("ls")
    eventually(lambda: key in {(it.task_id, it.epoch) for it in _running(site)})
    assert site.portal.state.kinds(key).count("failed") == 1
    processes = site.machine.processes(key)
    os.kill(site.machine.shim(key).pid, signal.SIGKILL)
    end = site.end_of(key)
    assert (end.reason, end.kept_end) == ("signal", "")
    eventually(lambda: not any(is_alive(pid) for pid in processes))


def _running(site: Site) -> list[Any]:
    return site.portal.state.heartbeats[-1].running


@pytest.mark.thorough
def test_a_kept_task_ends_when_its_node_loses_the_portal(site: Site) -> None:
    key = _kept(site)
    site.portal.state.lease_s = 1.0
    site.machine.connected_again()
    site.machine.kill()
    shim = site.machine.shim(key)
    eventually(lambda: not is_alive(shim.pid), what="the end of the shim")
    site.portal.state.lease_s = 30.0
    site.machine.start().connected()
    end = site.end_of(key)
    assert (end.reason, end.kept_end) == ("exit", "The node could not reach the portal.")


@pytest.mark.thorough
def test_a_kept_task_that_uses_too_much_memory_ends_or_loses_the_process(site: Site) -> None:
    limits = Resources(cpu_millis=1000, memory_bytes=256 << 20)
    key = _kept(site, "import sys; sys.exit(3)", resources=limits)
    shell = Shell(shell_path(site, key))
    shell.type("python -c 'x = bytearray(700 << 20); import time; time.sleep(1000)'\n")
    groups = read_json(site.machine.state(key).path.parent / "cgroup.json")
    if groups is not None and Cgroup.from_json(groups).memory is not None:
        shell.until("Killed")
        site.portal.state.stop(key)
        assert site.end_of(key).reason == "exit"
        return
    end = site.end_of(key)
    assert (end.reason, end.exit_code) == ("exit", 3)
    assert "more than its 256 MiB" in end.kept_end
