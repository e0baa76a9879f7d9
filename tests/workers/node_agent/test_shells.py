"""Shells in tasks, by a real agent: what they share with the task, and what they cannot do."""

import base64
import json
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.workers.fake_portal import Key
from tests.workers.machines import Site, eventually, is_alive
from tests.workers.shells import Shell, connect, shell_path
from workers.launcher.shells import MAX_SHELLS

_WAITS = """
import pathlib, time
print("task", flush=True)
while not pathlib.Path("go-on").exists():
    time.sleep(0.01)
"""
# What a process can tell about itself, to be compared between a task and a shell in it.
_ABOUT = """
import json, os, resource
print("ABOUT " + json.dumps({
    "user": [os.getuid(), os.getgid(), os.getgroups()],
    "cwd": os.getcwd(),
    "namespaces": {name: os.readlink("/proc/self/ns/" + name) for name in ("mnt", "ipc", "net")},
    "limits": [resource.getrlimit(getattr(resource, name))
               for name in ("RLIMIT_NPROC", "RLIMIT_NOFILE", "RLIMIT_FSIZE", "RLIMIT_CORE",
                            "RLIMIT_DATA")],
    "status": [line for line in open("/proc/self/status")
               if line.startswith(("Cap", "NoNewPrivs", "Seccomp:"))],
    "groups": open("/proc/self/cgroup").read(),
    "env": {name: os.environ.get(name) for name in
            ("MINE", "HOME", "TMPDIR", "RANK", "SLIPWAY_TASK_SOCKET", "PATH")},
}), flush=True)
"""


def _work(site: Site, key: Key) -> Path:
    return site.machine.state(key).path.parent / "work"


def _start(site: Site, script: str = _WAITS, **changes: Any) -> Key:
    key = site.run(script, shells=True, **changes)
    eventually(lambda: "running" in site.portal.state.kinds(key))
    return key


@pytest.fixture
def task(site: Site) -> Iterator[Key]:
    """A task that waits until its test is over."""
    key = _start(site, _ABOUT + _WAITS, env={"MINE": "yes"})
    yield key
    if site.portal.state.end_of(key) is None:
        (_work(site, key) / "go-on").touch()
        site.end_of(key)


def test_a_shell_is_exactly_where_its_task_is(site: Site, task: Key) -> None:
    def about() -> str:
        line, end, _ = site.portal.state.log_of(task).partition("ABOUT ")[2].partition("\n")
        return line if end else ""

    of_task = json.loads(eventually(about))
    shell = Shell(shell_path(site, task))
    (_work(site, task) / "about.py").write_text(_ABOUT)
    shell.type("stty cols 10000; clear\n")
    text = shell.run("python about.py")
    of_shell = json.loads(re.search(r"ABOUT (\{.*?\})\r\n", text)[1])  # type: ignore[index]
    assert of_shell == of_task
    assert of_shell["env"]["MINE"] == "yes"


def test_a_terminal_has_a_size_signals_unicode_and_an_exit_status(site: Site, task: Key) -> None:
    shell = Shell(shell_path(site, task))
    assert "24 80" in shell.run("stty size")
    assert shell.ask("resize", rows=50, columns=132) == {"ok": True}
    assert "50 132" in shell.run("stty size")
    assert "Grüße 🚢 日本" in shell.run("printf '%s' 'Grüße 🚢 日本'")
    assert "/dev/pts/" in shell.run("tty")
    shell.type("sleep 1000\n")
    eventually(lambda: any("sleep\x001000" in it for it in _commands(site, task)))
    shell.type("\x03")
    assert "130" in shell.run("echo $?")
    shell.type("exit 7\n")
    assert shell.to_end() == {"exit_code": 7, "reason": "exit"}
    assert shell.type("x")["error"] == "shell_ended"


def _commands(site: Site, key: Key) -> list[str]:
    lines = []
    for pid in site.machine.processes(key):
        try:
            lines.append(Path(f"/proc/{pid}/cmdline").read_text())
        except OSError:
            continue
    return lines


def test_output_survives_a_lost_connection(site: Site, task: Key) -> None:
    shell = Shell(shell_path(site, task))
    shell.run("echo before")
    shell.stream.close()
    shell.type("echo meanwhile\n")
    again = Shell(shell.path, opens=False)
    again.until("before")
    again.until("meanwhile\r\n")  # its echo
    again.until("meanwhile\r\n")
    # A request that is repeated types nothing twice, and a gap is noticed.
    typed = base64.b64encode(b"echo meanwhile\n").decode()
    assert again.ask("input", offset=shell.typed - 15, data=typed) == {"ok": True}
    assert again.ask("input", offset=shell.typed + 1, data=typed)["error"] == "input_gap"
    again.typed = shell.typed
    assert "meanwhile" not in again.run("echo after")


def test_a_flood_of_output_does_not_fill_the_memory(site: Site, task: Key) -> None:
    shell = Shell(shell_path(site, task))
    shell.type("yes | head -c 3000000; echo; echo do''ne\n")
    shim = site.machine.shim(task)
    shell.until("done")
    resident = int(Path(f"/proc/{shim.pid}/statm").read_text().split()[1]) * 4096
    assert resident < 200 << 20


def test_a_shell_ends_with_its_task(site: Site) -> None:
    key = _start(site)
    shell = Shell(shell_path(site, key))
    text = shell.run("nohup setsid sleep 1000 >/dev/null 2>&1 & echo pid=$!")
    assert "pid=" in text
    processes = site.machine.processes(key)
    (_work(site, key) / "go-on").touch()
    assert shell.to_end()["reason"] == "task_ended"
    end = site.end_of(key)
    assert (end.reason, end.exit_code) == ("completed", 0)
    eventually(lambda: not any(is_alive(pid) for pid in processes))
    eventually(lambda: not shell_path(site, key).exists())


def test_a_shell_cannot_reach_other_tasks_or_the_node(site: Site, task: Key) -> None:
    other = _start(site, persistent_key="another-project/w", env={"SECRET": "needle-11"})
    (_work(site, other) / "secret.txt").write_text("needle-11")
    shell = Shell(shell_path(site, task))
    for path in (_work(site, other) / "secret.txt", site.machine.data_dir / "node.json"):
        assert "needle-11" not in (text := shell.run(f"cat {path}"))
        assert "No such file" in text or "denied" in text
    shim = site.machine.shim(task).pid
    assert "needle-11" not in shell.run("cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    shell.run(f"kill -9 {shim}; kill -9 {site.machine.shim(other).pid}")
    assert is_alive(shim)
    assert is_alive(site.machine.shim(other).pid)
    assert "refused" in shell.run(f"ls {shell_path(site, task)} 2>/dev/null || echo refu''sed")
    (_work(site, other) / "go-on").touch()
    site.end_of(other)


def test_bad_requests_are_answered_and_change_nothing(site: Site, task: Key) -> None:
    path = shell_path(site, task)
    shell = Shell(path)
    assert shell.ask("open", rank=0, rows=24, columns=80) == {"ok": True}, "a repetition"
    assert Shell(path, name="shl_2", rank=5, opens=True).opened["error"] == "not_started"
    for fields in ({"rows": 0, "columns": 80}, {"rows": 24, "columns": 10**9}, {"rows": "x"}):
        assert shell.ask("resize", **fields)["error"] == "invalid"
    assert shell.ask("input", data="?")["error"] == "invalid"
    assert shell.ask("dance")["error"] == "invalid"
    for line in (b"\n", b"[]\n", b"\xff\n", b"{}\n"):
        with connect(path) as connection:
            connection.sendall(line)
            assert json.loads(connection.makefile("rb").readline())["error"] == "invalid"
    with connect(path) as connection, suppress(ConnectionError):
        connection.sendall(b"x" * (200 << 10))
        assert connection.recv(1) == b""
    names = [f"shl_m{number}" for number in range(MAX_SHELLS)]
    answers = [Shell(path, name=name).opened for name in names]
    assert answers[-1]["error"] == "too_many_shells"
    assert shell.ask("close") == {"ok": True}
    assert shell.to_end() == {"exit_code": None, "reason": "closed"}


def test_a_busy_shell_does_not_delay_its_task(site: Site) -> None:
    key = _start(
        site, "import time\nfor i in range(20):\n    print(i, flush=True)\n    time.sleep(0.05)\n"
    )
    shell = Shell(shell_path(site, key))
    shell.type("yes\n")
    began = time.monotonic()
    end = site.end_of(key)
    assert end.reason == "completed"
    assert time.monotonic() - began < 30
