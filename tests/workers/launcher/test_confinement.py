"""What a process cannot do once it is confined, checked from inside one."""

import json
import os
import secrets
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from workers.launcher.cgroup import Cgroup, CgroupLimits, CgroupParent
from workers.launcher.confinement import landlock_version
from workers.launcher.processes import ProcessMark, descendants, kill_marked, start_ticks

ROOT = Path(__file__).parents[3]
needs_landlock = pytest.mark.skipif(
    not landlock_version(), reason="this kernel has no Landlock to confine files with"
)


def run_confined(confinement: str, look: str, *arguments: str) -> Any:
    """Run code in a process that has confined itself; answers its variable `answer`."""
    code = (
        "import json, os, socket, sys\n"
        "from workers.launcher.confinement import *\n"
        f"confine(Confinement({confinement}))\n"
        "drop_capabilities()\n"
        "def can(act):\n"
        "    try:\n"
        "        act(); return True\n"
        "    except OSError: return False\n"
        f"{look}\nprint(json.dumps(answer))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@needs_landlock
def test_files_outside_are_out_of_reach(tmp_path: Path) -> None:
    own, yours, theirs = (tmp_path / name for name in ("mine", "yours", "theirs"))
    for folder in (own, yours, theirs):
        folder.mkdir()
        (folder / "file").write_text("x")
    look = (
        "mine, yours, theirs = sys.argv[1:]\n"
        "answer = [can(lambda path=path, mode=mode: open(path + '/file', mode))"
        " for path in (mine, yours, theirs) for mode in ('r', 'a')]\n"
        "answer += [can(lambda: os.rename(mine + '/file', yours + '/moved')),"
        " can(lambda: os.symlink(theirs, mine + '/link')),"
        " can(lambda: os.listdir(mine + '/link'))]\n"
    )
    results = run_confined("(sys.argv[1],), (sys.argv[2],)", look, *map(str, (own, yours, theirs)))
    assert results == [True, True, True, False, False, False, False, True, False]


@needs_landlock
@pytest.mark.skipif(landlock_version() < 6, reason="this Landlock does not keep signals inside")
def test_signals_and_abstract_sockets_stay_inside() -> None:
    name = f"slipway-test-{secrets.token_hex(8)}"  # abstract names are the whole machine's
    look = (
        f"def call(): socket.socket(socket.AF_UNIX).connect('\\0{name}')\n"
        "answer = [can(lambda: os.kill(os.getppid(), 0)), can(call), can(lambda: os.kill(0, 0))]\n"
    )
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(f"\0{name}")
        door.listen()
        assert run_confined("(), ('/',), outermost=True", look) == [False, False, True]


def test_nothing_is_left_of_root() -> None:
    look = (
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "answer = [int(status[name], 16) for name in ('CapEff', 'CapPrm', 'CapInh', 'CapAmb')]\n"
        "answer += [int(status['NoNewPrivs'])]\n"
        "answer += [int(status['CapBnd'], 16) if os.geteuid() == 0 else 0]\n"
    )
    assert run_confined("(), ('/',)", look) == [0, 0, 0, 0, 1, 0]


def test_a_process_is_known_by_more_than_its_number() -> None:
    process = subprocess.Popen(["sleep", "600"])
    mark = ProcessMark.of(process.pid)
    assert mark is not None
    assert mark.is_alive()
    assert not ProcessMark(mark.pid, mark.ticks + 1, mark.boot).is_alive()
    assert not ProcessMark(mark.pid, mark.ticks, "another boot").is_alive()
    process.kill()
    process.wait()
    assert not mark.is_alive()
    assert ProcessMark.of(process.pid) is None


def test_processes_are_found_by_their_family_and_by_their_mark() -> None:
    process = subprocess.Popen(
        ["sh", "-c", "sleep 600 & wait"], env={"PATH": "/usr/bin:/bin", "SLIPWAY_MARK": "x-y-z"}
    )
    family = [process.pid]
    while len(family) < 2:
        family = [process.pid, *descendants(process.pid)]
    killed: set[int] = set()
    while not set(family) <= killed:
        killed |= set(kill_marked(b"SLIPWAY_MARK=x-y-z"))
    process.wait()
    assert os.getpid() not in killed
    assert start_ticks(os.getpid()) is not None


def test_control_groups_limit_count_and_kill() -> None:
    parent = CgroupParent.find()
    if not parent.limits_memory:
        pytest.skip("this machine lets us make no control groups that limit memory")
    group = parent.create(f"test-{os.getpid()}", CgroupLimits(64 << 20, 500))
    try:
        code = (
            "import sys, json\n"
            "from workers.launcher.cgroup import Cgroup\n"
            "Cgroup.from_json(json.loads(sys.argv[1])).join()\n"
            "if len(sys.argv) > 2: import time; print('in', flush=True); time.sleep(600)\n"
            "block = bytearray(200 << 20)\n"
        )
        command = [sys.executable, "-c", code, json.dumps(asdict(group))]
        environment = {"PYTHONPATH": str(ROOT)}
        assert subprocess.run(command, env=environment, check=False).returncode == -9
        assert group.oom_kills() == 1
        assert group.memory_limit() == 64 << 20
        assert 32 << 20 < (group.memory_peak() or 0) <= 64 << 20
        staying = subprocess.Popen([*command, "stay"], env=environment, stdout=subprocess.PIPE)
        assert staying.stdout is not None
        assert staying.stdout.readline() == b"in\n"
        assert group.members() == [staying.pid]
        group.kill()
        staying.stdout.close()
        assert staying.wait() == -9
    finally:
        assert group.remove()


def test_version_2_is_read_and_written_by_its_own_names(tmp_path: Path) -> None:
    folder = tmp_path / "slipway"
    folder.mkdir()
    (folder / "cgroup.controllers").write_text("cpu memory pids\n")
    (folder / "cgroup.subtree_control").write_text("cpu memory pids\n")
    parent = CgroupParent(v2=folder, v1={})
    assert parent.limits_memory
    (folder / "t1").mkdir()
    (folder / "t1" / "memory.max").touch()
    group = parent.create("t1", CgroupLimits(64 << 20, 500))
    written = {path.name: path.read_text() for path in (folder / "t1").iterdir()}
    assert written == {
        "memory.max": str(64 << 20),
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "50000 100000",
        "cpu.weight": "50",
        "pids.max": "4096",
    }
    everything = CgroupLimits(64 << 20, 1000 * len(os.sched_getaffinity(0)))
    parent.create("t1", everything)
    assert (folder / "t1" / "cpu.max").read_text() == "max 100000", "no quota is needed"
    (folder / "t1" / "memory.current").write_text("1000\n")
    (folder / "t1" / "memory.peak").write_text("2000\n")
    (folder / "t1" / "memory.stat").write_text("anon 600\ninactive_file 300\n")
    (folder / "t1" / "memory.events").write_text("low 0\noom 2\noom_kill 1\n")
    assert (group.memory_now(), group.memory_peak(), group.oom_kills()) == (700, 2000, 1)
    assert group.memory_limit() == 64 << 20
    (folder / "t1" / "memory.max").write_text("max\n")
    assert group.memory_limit() is None


def test_without_control_groups_nothing_happens() -> None:
    group = CgroupParent.none().create("t1", CgroupLimits(1, 1))
    assert group == Cgroup(is_v2=False)
    group.join()
    group.kill()
    assert group.remove()
    assert (group.memory_now(), group.memory_peak(), group.oom_kills()) == (None, None, 0)
