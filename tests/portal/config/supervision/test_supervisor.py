"""The promises of the supervisor, kept by real processes."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import (
    ROOT,
    Program,
    children_of,
    clean_environment,
    command_of,
    is_alive,
    wait_for,
)

_SLEEPER = """
import os, subprocess, sys, time
folder, name = sys.argv[1:3]
print("chatter of", name, flush=True)
{extra}
open(f"{{folder}}/{{name}}.pid", "w").write(str(os.getpid()))
time.sleep(1000)
"""
_WITH_GRANDCHILD = """
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"])
open(f"{folder}/{name}.grandchild", "w").write(str(child.pid))
"""
_STUBBORN = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
"""


class Stage:
    """A folder, the processes to supervise in it, and their supervisor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.specs: list[dict[str, Any]] = []

    def add(self, name: str, *, extra: str = "", code: str = "", **spec: Any) -> None:
        """Add a process that is ready at once and sleeps, or runs `code` instead."""
        program = code or _SLEEPER.format(extra=extra)
        argv = [sys.executable, "-S", "-c", program, str(self.folder), name]
        pid_file = str(self.folder / f"{name}.pid")
        self.specs.append({"name": name, "argv": argv, "pid_file": pid_file} | spec)

    def supervise(self, stdout: int | None = None) -> Program:
        """Start the supervisor; its terminal is a file, or what `stdout` is."""
        (self.folder / "specs.json").write_text(json.dumps(self.specs))
        self.program = Program(
            [sys.executable, "-m", "tests.portal.config.supervision.driver", str(self.folder)],
            env=clean_environment() | {"PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}"},
            output=self.folder / "terminal.log",
            stdout=stdout,
        )
        return self.program

    def pid_of(self, name: str, suffix: str = "pid") -> int:
        """Return the process id that a process (or its grandchild) wrote down."""
        path = self.folder / f"{name}.{suffix}"
        return wait_for(lambda: int(path.read_text() or 0) if path.exists() else 0, f"{path.name}")

    def end(self) -> None:
        """Leave nothing behind, whatever the test did."""
        self.program.end()
        for path in [*self.folder.glob("*.pid"), *self.folder.glob("*.grandchild")]:
            text = path.read_text()
            if text and is_alive(int(text)) and str(self.folder) in command_of(int(text)):
                os.kill(int(text), signal.SIGKILL)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.end()


def _guard_of(program: Program) -> int:
    # Between fork and exec it has no command line yet.
    return wait_for(
        lambda: next((pid for pid in children_of(program.pid) if "guard.py" in command_of(pid)), 0),
        "guard",
    )


def _gone(*pids: int) -> None:
    wait_for(lambda: not any(map(is_alive, pids)), f"end of all of {pids}", within_s=5)


def test_a_killed_child_is_back_within_three_seconds_and_the_log_says_why(stage: Stage) -> None:
    stage.add("web")
    program = stage.supervise()
    program.wait_for_text("all ready")
    first = stage.pid_of("web")
    killed_at = time.monotonic()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: stage.pid_of("web") != first, "new process", within_s=3)
    program.wait_for_text("web ready again", within_s=3)
    assert time.monotonic() - killed_at < 3
    assert "web killed by SIGKILL (signal 9), manually or by the kernel" in program.text()
    assert "starting it again now" in program.text()


def test_what_a_killed_child_had_started_goes_with_it(stage: Stage) -> None:
    stage.add("web", extra=_WITH_GRANDCHILD)
    program = stage.supervise()
    program.wait_for_text("all ready")
    grandchild = stage.pid_of("web", "grandchild")
    os.kill(stage.pid_of("web"), signal.SIGKILL)
    _gone(grandchild)


def test_killing_the_supervisor_leaves_nothing_running(stage: Stage) -> None:
    stage.add("web", extra=_WITH_GRANDCHILD + _STUBBORN)
    stage.add("worker")
    program = stage.supervise()
    program.wait_for_text("all ready")
    everything = [
        stage.pid_of("web"),
        stage.pid_of("worker"),
        stage.pid_of("web", "grandchild"),
        _guard_of(program),
    ]
    program.signal(signal.SIGKILL)
    _gone(*everything)


def test_killing_supervisor_and_guard_together_still_ends_the_children(stage: Stage) -> None:
    stage.add("web", extra=_STUBBORN)
    program = stage.supervise()
    program.wait_for_text("all ready")
    os.kill(_guard_of(program), signal.SIGKILL)
    program.signal(signal.SIGKILL)
    _gone(stage.pid_of("web"))


@pytest.mark.thorough
def test_a_killed_guard_is_followed_by_one_that_knows_as_much(stage: Stage) -> None:
    stage.add("web", extra=_WITH_GRANDCHILD)
    program = stage.supervise()
    program.wait_for_text("all ready")
    first = _guard_of(program)
    os.kill(first, signal.SIGKILL)
    program.wait_for_text("the guard process died; another one replaced it")
    second = _guard_of(program)
    assert second != first
    program.signal(signal.SIGKILL)
    _gone(stage.pid_of("web"), stage.pid_of("web", "grandchild"), second)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_stop_signal_ends_everything_and_the_exit_is_clean(
    stage: Stage, number: signal.Signals
) -> None:
    stage.add("web", extra=_WITH_GRANDCHILD)
    program = stage.supervise()
    program.wait_for_text("all ready")
    pids = [stage.pid_of("web"), stage.pid_of("web", "grandchild"), _guard_of(program)]
    program.signal(number)
    assert program.wait(5) == 0
    _gone(*pids)


def test_a_child_that_ignores_the_stop_is_killed_after_its_grace(stage: Stage) -> None:
    stage.add("web", extra=_STUBBORN, grace_s=0.5)
    program = stage.supervise()
    program.wait_for_text("all ready")
    program.signal(signal.SIGINT)
    assert program.wait(5) == 0
    assert "web did not stop in 0.5 s; killing it" in program.text()
    _gone(stage.pid_of("web"))


def test_asking_twice_kills_at_once(stage: Stage) -> None:
    stage.add("web", extra=_STUBBORN, grace_s=60)
    program = stage.supervise()
    program.wait_for_text("all ready")
    program.signal(signal.SIGINT)
    program.wait_for_text("stopping (SIGINT)")
    program.signal(signal.SIGINT)
    assert program.wait(5) == 0
    _gone(stage.pid_of("web"))


def test_what_serves_others_is_stopped_last(stage: Stage) -> None:
    note = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: ("
        "print('bye of', name, flush=True), os._exit(0)))"
    )
    stage.add("redis", extra=note, serves_others=True)
    stage.add("web", extra="time.sleep(0.2)\n" + note)
    program = stage.supervise()
    program.wait_for_text("all ready")
    program.signal(signal.SIGTERM)
    program.wait(5)
    log = (stage.folder / "all.log").read_text()
    assert log.index("bye of web") < log.index("bye of redis")


@pytest.mark.thorough
def test_a_child_that_keeps_dying_waits_longer_each_time(stage: Stage) -> None:
    dies = "import os, sys; open(f'{sys.argv[1]}/{sys.argv[2]}.pid', 'w').write(str(os.getpid()))"
    stage.add("web", code=dies + "\nimport time; time.sleep(0.3); sys.exit(7)")
    program = stage.supervise()
    output = program.wait_for_text("starting it again in 1 s", within_s=10)
    assert "web exited with code 7; starting it again now" in output
    assert "web exited with code 7; starting it again in 0.5 s" in output


def test_a_child_that_never_gets_ready_ends_the_start_with_its_last_words(stage: Stage) -> None:
    stage.add("web", code="print('no module named flask'); raise SystemExit(1)")
    stage.add("worker")
    program = stage.supervise()
    assert program.wait() == 2
    assert "web     | no module named flask" in program.text()
    assert "web cannot start: it exited with code 1; see above." in program.text()
    _gone(stage.pid_of("worker"))


def test_a_child_that_refuses_its_settings_is_not_started_again(stage: Stage) -> None:
    stage.add("web", code="print('slipway: bad port'); raise SystemExit(2)")
    program = stage.supervise()
    assert program.wait() == 2
    assert program.text().count("slipway: bad port") == 1


def test_a_program_that_is_missing_is_named(stage: Stage) -> None:
    stage.specs.append({"name": "web", "argv": ["/nowhere/web"], "pid_file": "none"})
    program = stage.supervise()
    assert program.wait() == 2
    assert "/nowhere/web cannot be started: No such file or directory" in program.text()


def test_the_chatter_of_a_good_start_is_in_the_file_alone(stage: Stage) -> None:
    stage.add("web")
    program = stage.supervise()
    program.wait_for_text("all ready")
    assert "chatter of web" not in program.text()
    assert "chatter of web" in (stage.folder / "all.log").read_text()


@pytest.mark.thorough
def test_one_that_floods_the_log_does_not_hold_up_the_others(stage: Stage) -> None:
    stage.add("flood", extra="subprocess.Popen(['yes', 'x' * 100])")
    stage.add("web")
    program = stage.supervise()
    program.wait_for_text("all ready")
    first = stage.pid_of("web")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: stage.pid_of("web") != first, "new process", within_s=3)
    program.signal(signal.SIGINT)
    assert program.wait(10) == 0


@pytest.mark.thorough
def test_a_paused_terminal_does_not_hold_up_anything(stage: Stage) -> None:
    talks = "subprocess.Popen(['bash', '-c', 'while sleep 0.001; do echo " + "x" * 200 + "; done'])"
    stage.add("web", extra=talks)
    reading, writing = os.pipe()  # nobody reads: it is full in a moment
    try:
        stage.supervise(stdout=writing)
        log = stage.folder / "all.log"
        wait_for(lambda: log.exists() and "all ready" in log.read_text(), "start")
        wait_for(lambda: log.stat().st_size > 300_000, "more lines than a pipe holds")
        first = stage.pid_of("web")
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: stage.pid_of("web") != first, "new process", within_s=3)
    finally:
        os.close(reading)
        os.close(writing)


def test_what_uses_others_is_stopped_first(stage: Stage) -> None:
    note = (
        "import signal; signal.signal(signal.SIGTERM, lambda *_: ("
        "time.sleep({}), print('bye of', name, flush=True), os._exit(0)))"
    )
    stage.add("web", extra=note.format(0))
    stage.add("agent", extra=note.format(0.3), uses_others=True)
    program = stage.supervise()
    program.wait_for_text("all ready")
    program.signal(signal.SIGTERM)
    program.wait(5)
    log = (stage.folder / "all.log").read_text()
    assert log.index("bye of agent") < log.index("bye of web")


@pytest.mark.thorough
def test_what_the_rest_can_do_without_holds_nothing_up(stage: Stage) -> None:
    stage.add("agent", code="print('no driver'); raise SystemExit(2)", optional=True)
    stage.add("web")
    program = stage.supervise()
    output = program.wait_for_text("all ready", within_s=20)
    assert "agent   | no driver" in output
    assert "agent is not ready: no process yet; continuing" in output
    assert is_alive(stage.pid_of("web"))


# Starts what is to outlive it, and clears that up when it is asked to go.
_STARTS_A_TASK = """
task = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(1000)"],
                        start_new_session=True)
open(f"{folder}/{name}.grandchild", "w").write(str(task.pid))
import signal
def leave(*_):
    task.kill()
    os._exit(0)
signal.signal(signal.SIGTERM, leave)
"""
_CLEARS_UP = """
import os, sys
folder = sys.argv[1]
os.kill(int(open(f"{folder}/agent.grandchild").read()), 9)
open(f"{folder}/cleared", "a").write("cleared\\n")
"""


def _add_agent(stage: Stage) -> None:
    clear_up = [sys.executable, "-S", "-c", _CLEARS_UP, str(stage.folder)]
    stage.add("agent", extra=_STARTS_A_TASK, clear_up=clear_up)


def test_what_outlives_a_killed_child_is_cleared_up_with_the_supervisor(stage: Stage) -> None:
    _add_agent(stage)
    program = stage.supervise()
    program.wait_for_text("all ready")
    first, task = stage.pid_of("agent"), stage.pid_of("agent", "grandchild")
    (stage.folder / "agent.grandchild").rename(stage.folder / "first.grandchild")
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: stage.pid_of("agent") != first, "another agent", within_s=3)
    assert is_alive(task)
    second = stage.pid_of("agent", "grandchild")
    program.signal(signal.SIGKILL)
    wait_for((stage.folder / "cleared").exists, "clearing up", within_s=5)
    _gone(second)


def test_a_child_that_left_well_is_not_cleared_up_after(stage: Stage) -> None:
    _add_agent(stage)
    program = stage.supervise()
    program.wait_for_text("all ready")
    program.signal(signal.SIGTERM)
    assert program.wait(5) == 0
    _gone(stage.pid_of("agent", "grandchild"))
    assert not (stage.folder / "cleared").exists()


def test_asking_twice_clears_up_before_the_end(stage: Stage) -> None:
    _add_agent(stage)
    stage.specs[-1]["grace_s"] = 60
    stage.specs[-1]["argv"][3] = _SLEEPER.format(extra=_STARTS_A_TASK + _STUBBORN)
    program = stage.supervise()
    program.wait_for_text("all ready")
    program.signal(signal.SIGINT)
    program.wait_for_text("stopping (SIGINT)")
    program.signal(signal.SIGINT)
    assert program.wait(5) == 0
    assert (stage.folder / "cleared").read_text() == "cleared\n"
    assert not is_alive(stage.pid_of("agent", "grandchild"))
