"""A script cannot tell whether `python script.py`, a cold start or a warm fork runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.fake_portal import make_spec
from tests.workers.machines import Site

# A warm process imports torch first; `test_warm.py` starts one in the gate.
WAYS = ["cold", pytest.param("warm", marks=[pytest.mark.torch, pytest.mark.thorough])]

LOOKING_AROUND = """
import json, multiprocessing, os, pickle, signal, sys, threading

class Thing:
    pass

def path_of(value):
    return value.replace(os.path.realpath(os.getcwd()), "HERE").replace(os.getcwd(), "HERE")

module = sys.modules["__main__"]
seen = {
    "globals": sorted(name for name in globals() if name.startswith("__")),
    "file": path_of(__file__),
    "spec": __spec__ and [__spec__.name, type(__spec__.loader).__name__],
    "package": repr(__package__),
    "doc": __doc__,
    "cached": path_of(str(__cached__)),
    "builtins": type(__builtins__).__name__,
    "annotations": repr(__annotations__),
    "loader": type(__loader__).__name__,
    "argv": [path_of(entry) for entry in sys.argv],
    "path": [path_of(entry) for entry in sys.path],
    "main is us": module.Thing is Thing,
    "pickled": type(pickle.loads(pickle.dumps(Thing()))) is Thing,
    "thing": f"{Thing.__module__}.{Thing.__qualname__}",
    "our modules": [name for name in sys.modules if name.split(".")[0] == "workers"],
    "executable": sys.executable,
    "flags": str(sys.flags),
    "threads": threading.active_count(),
    "main thread": threading.current_thread() is threading.main_thread(),
    "process": multiprocessing.current_process().name,
    "sigint": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "sigterm": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    "sigchld": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
    "sigpipe": signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
    "mask": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "wakeup": signal.set_wakeup_fd(-1),
    "encoding": [sys.stdout.encoding, sys.stderr.encoding, sys.getfilesystemencoding()],
    "umask": os.umask(0o22),
    "recursion": sys.getrecursionlimit(),
    "trace": [sys.gettrace() is None, sys.getprofile() is None],
}
print(json.dumps(seen))
print("<end>")
"""

IN_A_POOL = """
import json, multiprocessing, os, sys

class Point:
    def __init__(self, x): self.x = x

def double(point):
    return Point(point.x * 2)

if __name__ == "__main__":
    answer = {}
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            answer[method] = [point.x for point in pool.map(double, [Point(1), Point(2)])]
    print(json.dumps(answer))
    print("<end>")
"""


@pytest.fixture(scope="module")
def warm_site() -> Iterator[Site]:
    """A site that keeps a process warm."""
    new_site = Site()
    new_site.portal.state.prewarm = ["torch"]
    new_site.portal.state.bump()
    yield new_site
    new_site.close()
    assert not new_site.portal.state.breaches


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Any:
    """Run files the given way: `run(way, files, argv)` answers the end and the log of rank 0."""

    def start(way: str, files: dict[str, str], *argv: str, **changes: Any) -> Any:
        site: Site = request.getfixturevalue("warm_site" if way == "warm" else "site")
        digest = site.portal.state.add_snapshot(files)
        warm = "torch" if way == "warm" else None
        spec = make_spec(*argv, snapshot=digest, warm=warm, **changes)
        key = site.portal.state.want(site.new_name(), spec)
        end = site.end_of(key)
        running = [report for report in site.portal.state.reports[key] if report.kind == "running"]
        assert [report.warm for report in running] == [way == "warm"], running
        return site, end

    return start


def run_plainly(tmp_path: Path, files: dict[str, str], *argv: str) -> tuple[int, str]:
    """What `python …` itself does with the files."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, *argv[1:]],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("argv", [("python", "look.py", "-x", "a b"), ("python", "-m", "look")])
def test_a_script_sees_the_same(
    run: Any, tmp_path: Path, site: Site, way: str, argv: tuple[str, ...]
) -> None:
    files = {"look.py": LOOKING_AROUND}
    _, output = run_plainly(tmp_path, files, *argv)
    place, end = run(way, files, *argv)
    expected = json.loads(output.splitlines()[0])
    result = json.loads(place.whole_log(end).splitlines()[-1])
    # What is ours stands at the very end of the path, behind everything of the environment's own.
    added = [Path(entry).name for entry in result["path"][-2:]]
    assert added == ["in_jobs", "sdk"]
    del result["path"][-2:]
    assert result == expected


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_processes_of_every_kind_find_the_main_module(run: Any, way: str) -> None:
    place, end = run(way, {"pool.py": IN_A_POOL}, "python", "pool.py")
    assert end.reason == "completed", end
    answer = json.loads(place.whole_log(end).splitlines()[-1])
    assert answer == {"fork": [2, 4], "spawn": [2, 4], "forkserver": [2, 4]}


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("script", "exit_code", "output"),
    [
        ("import sys; sys.exit(5)", 5, ""),
        ("import sys; sys.exit('sorry')", 1, "sorry\n"),
        ("import sys; sys.exit(None)", 0, ""),
        ("import sys; sys.exit(256 + 7)", 7, ""),
        ("import atexit; atexit.register(print, 'last'); print('first')", 0, "first\nlast\n"),
        ("import threading\nthreading.Timer(0.3, print, ['late']).start()", 0, "late\n"),
        ("import os; os._exit(9)", 9, ""),
        ("import sys; sys.excepthook = lambda *a: print(len(a))\n1/0", 1, "3\n"),
        ("import sys; sys.stdout.write('no newline')", 0, "no newline"),
    ],
)  # fmt: skip
def test_it_ends_the_same(
    run: Any, tmp_path: Path, way: str, script: str, exit_code: int, output: str
) -> None:
    files = {"a.py": script}
    assert run_plainly(tmp_path, files, "python", "a.py") == (exit_code, output)
    place, end = run(way, files, "python", "a.py")
    assert end.exit_code == exit_code
    assert end.log_tail == output
    assert end.reason == ("exit" if exit_code else "completed")
    assert place.portal.state.breaches == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("script", "argv", "message"),
    [
        ("sys.exit('bad data: no rows')", ("python", "a.py"), ": bad data: no rows"),
        ("sys.exit(['a', 1])", ("python", "a.py"), ": ['a', 1]"),
        ("raise ValueError('no rows')", ("python", "-m", "a"), ": ValueError: no rows"),
        ("sys.exit(3)", ("python", "a.py"), ": View run at http://127.0.0.1/"),
        ("raise KeyError('id')", ("sh", "-c", "python3 a.py"), ": KeyError: 'id'"),
    ],
)
def test_the_reason_is_what_the_script_ended_with_and_no_later_line(
    run: Any, way: str, script: str, argv: tuple[str, ...], message: str
) -> None:
    library = "import atexit, sys\natexit.register(print, 'View run at http://127.0.0.1/')\n"
    if way == "warm" and argv[0] == "sh":
        pytest.skip("a shell is never warm")
    place, end = run(way, {"a.py": library + script}, *argv)
    assert end.message == f"Rank 0 exited with status {end.exit_code}{message}"
    assert place.portal.state.breaches == []


@pytest.mark.parametrize("way", WAYS)
def test_a_traceback_is_the_same(run: Any, tmp_path: Path, way: str) -> None:
    script = "def inner():\n    raise KeyError('x')\n\n\nfor _ in range(1):\n    inner()\n"
    files = {"a.py": script}
    _, output = run_plainly(tmp_path, files, "python", "a.py")
    place, end = run(way, files, "python", "a.py")
    work = place.machine.data_dir / "tasks" / f"{end.task_id}-1" / "work"
    assert end.log_tail.replace(str(work), str(tmp_path)) == output


@pytest.mark.parametrize("way", WAYS)
def test_a_user_may_have_modules_with_our_names(run: Any, way: str) -> None:
    files = {
        "a.py": "import workers.launcher, logs\nprint(workers.launcher.mine, logs.mine)",
        "workers/__init__.py": "",
        "workers/launcher.py": "mine = 'theirs'",
        "logs.py": "mine = 'too'",
    }
    _, end = run(way, files, "python", "a.py")
    assert end.log_tail == "theirs too\n"


@pytest.mark.thorough
@pytest.mark.parametrize("way", WAYS)
def test_each_line_arrives_while_the_script_runs(run: Any, site: Site, way: str) -> None:
    files = {"a.py": "import time\nprint('one')\ntime.sleep(1)\nprint('two', end='')\n"}
    _, end = run(way, files, "python", "a.py")
    assert end.log_tail == "one\ntwo"


@pytest.mark.parametrize("way", WAYS)
def test_a_crash_shows_the_python_stack(run: Any, way: str) -> None:
    script = "import faulthandler, os\nfaulthandler.enable()\nos.kill(os.getpid(), 11)\n"
    _, end = run(way, {"a.py": script}, "python", "a.py")
    assert end.reason == "signal"
    assert "Fatal Python error: Segmentation fault" in end.log_tail
