"""Watching a job on a real terminal: live state, colours, hostile logs, Ctrl-C."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slipway.cli.terminals import (
    PATIENCE_S,
    Terminal,
    Terminals,
    environment,
    terminals,
    without_styles,
)
from tests.slipway.jobserver import PROJECT, TrainingServer, training_server
from tests.slipway.servers import NASTY
from tests.slipway.snapshots.folders import write_tree

__all__ = ["environment", "terminals"]


@pytest.fixture
def server(environment: dict[str, str]) -> Iterator[TrainingServer]:
    """A server the machine of the terminals is signed in to."""
    with training_server() as job_server:
        environment |= {
            "SLIPWAY_URL": job_server.url,
            "SLIPWAY_TOKEN": "slp_x",
            "SLIPWAY_PROJECT": PROJECT,
        }
        yield job_server


def interrupt(terminal: Terminal) -> None:
    """Press Ctrl-C."""
    os.killpg(terminal.process.pid, signal.SIGINT)


@pytest.mark.thorough
def test_a_running_job_is_shown_live_with_its_reasons(
    terminals: Terminals, server: TrainingServer
) -> None:
    server.add_job(state="queued", explanation="waits: gpu-1 is busy with vision/train-7")
    terminal = terminals.run("job", "logs", "wl_1", "--follow")
    terminal.expect("waits: gpu-1 is busy")
    terminal.expect("Ctrl-C stops watching")
    server.set(state="running", explanation="runs on n1", step=1234, first_step_after_s=0.4)
    server.sample(cpu_percent=187.0, memory_bytes=3 * 1024**3, gpu_percent=91.0)
    server.log(b"\x1b[32mloss 0.1\x1b[0m\n")
    terminal.expect("step 1,234")
    terminal.expect("CPU 187 %")
    terminal.expect("3.0 GiB")
    terminal.expect("GPU 91 %")
    terminal.expect("\x1b[32mloss 0.1")
    server.set(state="failed", explanation="out of memory", next_step="Try cpu-large.")
    assert terminal.finish() == 8
    plain = without_styles(terminal.seen)
    assert "failed: out of memory" in plain
    assert "Next step: Try cpu-large." in plain
    assert terminal.seen.endswith("cost $0.00\r\n")
    assert "\x1b[?25h" in terminal.seen, "the cursor is back"


@pytest.mark.thorough
def test_nothing_in_a_log_or_a_state_drives_the_terminal(
    terminals: Terminals, server: TrainingServer
) -> None:
    server.add_job(explanation=NASTY)
    server.log(b"a\x1b[2J\x1b]0;owned\x07\x1b[6n\x1b[?1049hb\n\x9b31mlatin\n\x00\x08\n")
    server.log(NASTY.encode() + b"\n")
    server.set(state="failed", next_step=NASTY)
    terminal = terminals.run("job", "logs", "wl_1", "--follow")
    assert terminal.finish() == 8
    assert "ab\r\n" in terminal.seen
    for attack in (
        "\x1b[2J",
        "\x1b]0;",
        "\x1b[6n",
        "\x1b[?1049h",
        "\x07",
        "\u202e",
        "\x9b",
        "\x00",
    ):
        assert attack not in terminal.seen, repr(attack)


@pytest.mark.thorough
def test_colours_of_a_log_are_left_out_where_nobody_wants_them(
    terminals: Terminals, server: TrainingServer
) -> None:
    server.add_job()
    server.log(b"\x1b[31mred\x1b[0m\n")
    server.set(state="succeeded")
    terminal = terminals.run("job", "logs", "wl_1", "--follow", NO_COLOR="1")
    assert terminal.finish() == 0
    assert "\x1b[31m" not in terminal.seen
    terminal = terminals.run("job", "logs", "wl_1")
    assert terminal.finish() == 0
    assert "\x1b[31mred\x1b[0m" in terminal.seen


@pytest.mark.thorough
def test_a_dumb_terminal_gets_plain_lines(terminals: Terminals, server: TrainingServer) -> None:
    server.add_job()
    server.log(b"\x1b[31mline\x1b[0m\n")
    server.set(state="succeeded", explanation="done")
    terminal = terminals.run("job", "logs", "wl_1", "--follow", TERM="dumb")
    assert terminal.finish() == 0
    assert "\x1b" not in terminal.seen
    assert "line\r\n" in terminal.seen


def test_ctrl_c_ends_the_watching_and_not_the_job(
    terminals: Terminals, server: TrainingServer, tmp_path: Path
) -> None:
    write_tree(tmp_path / "code", {"train.py": ""})
    terminal = terminals.run("train", "train.py", "--code", str(tmp_path / "code"), "--watch")
    terminal.expect("Ctrl-C stops watching")
    interrupt(terminal)
    interrupt(terminal)
    terminal.expect("Stopped watching")
    interrupt(terminal)
    assert terminal.finish() == 130
    plain = without_styles(terminal.seen)
    assert "Stopped watching. The job continues." in plain
    assert "Stop it: slipway job cancel wl_1\r\n" in plain
    assert "Traceback" not in plain
    assert "/cancel" not in " ".join(path for _, path, _ in server.requests)


@pytest.mark.thorough
def test_the_project_is_named_in_the_advice_where_it_is_not_the_usual_one(
    terminals: Terminals, server: TrainingServer
) -> None:
    server.add_job()
    terminal = terminals.run(
        "job", "logs", "wl_1", "-p", PROJECT, "--follow", SLIPWAY_PROJECT="another"
    )
    terminal.expect("Ctrl-C stops watching")
    interrupt(terminal)
    assert terminal.finish() == 130
    assert f"slipway job cancel wl_1 --project {PROJECT}" in terminal.seen


@pytest.mark.thorough
def test_a_flood_of_lines_keeps_up(terminals: Terminals, server: TrainingServer) -> None:
    server.add_job(state="running")
    server.log(b"".join(b"step %d loss 0.123456\n" % number for number in range(100_000)))
    server.set(state="succeeded")
    started = time.monotonic()
    terminal = terminals.run("job", "logs", "wl_1", "--follow")
    assert terminal.finish() == 0
    assert time.monotonic() - started < PATIENCE_S
    assert terminal.seen.count("loss 0.123456") == 100_000


@pytest.mark.thorough
def test_sending_code_shows_how_far_it_is(
    terminals: Terminals, server: TrainingServer, tmp_path: Path
) -> None:
    write_tree(tmp_path / "code", {"train.py": "", "blob.bin": os.urandom(3_000_000)})
    terminal = terminals.run("train", "train.py", "--code", str(tmp_path / "code"))
    assert terminal.finish() == 0
    plain = without_styles(terminal.seen)
    assert "Uploading code" in plain
    assert "wl_1" in plain
