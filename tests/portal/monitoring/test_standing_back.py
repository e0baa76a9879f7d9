"""The process that analyses takes what others leave, and ends with whoever has started it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, clean_environment, is_alive, wait_for

_AUTOGROUP_ON = Path("/proc/sys/kernel/sched_autogroup_enabled")
_WITHOUT_ADMINISTRATION = (
    ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"] if os.getuid() == 0 else []
)
# Lets a process analyse nothing, tells which it is, and waits.
_STARTED = """
import json, os, time
from pathlib import Path
import django
django.setup()
from portal.monitoring.analyst import analyst
from tests.portal.monitoring.analysis import analysing_process
with analyst() as process:
    sample = Path(process.folder) / "sample.json"
    sample.write_text(json.dumps({"inputs": [[1.0], [2.0]], "rows": 2}))
    process.request("profile_sample", path=str(sample), columns=[])
    print(analysing_process(os.getpid()), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def started(tmp_path: Path) -> "subprocess.Popen[str]":
    """A process that has started one that analyses, and says which."""
    return subprocess.Popen(
        [sys.executable, "-c", _STARTED],
        env=clean_environment()
        | {
            "PYTHONPATH": f"{ROOT / 'platform'}:{ROOT}",
            "TMPDIR": str(tmp_path),
            "DJANGO_SETTINGS_MODULE": "tests.settings",
        },
        stdout=subprocess.PIPE,
        text=True,
    )


def test_several_that_start_at_once_are_all_nice() -> None:
    """Linux refuses a second change within a tenth of a second to those who do not administer."""
    if not _AUTOGROUP_ON.exists() or _AUTOGROUP_ON.read_text().strip() != "1":
        pytest.skip("this kernel has no autogroups")
    code = (
        "from pathlib import Path\n"
        "from portal.monitoring.cpu_priority import lower_session_priority\n"
        "input()\n"
        "lower_session_priority(19)\n"
        "print(Path('/proc/self/autogroup').read_text())\n"
    )
    environment = clean_environment() | {"PYTHONPATH": str(ROOT / "platform")}
    processes = [
        subprocess.Popen(
            [*_WITHOUT_ADMINISTRATION, sys.executable, "-c", code],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert [output.split()[-1] for output in outputs] == ["19"] * 4


@pytest.mark.thorough
def test_what_analyses_is_nice_and_dies_with_its_parent(started: "subprocess.Popen[str]") -> None:
    with started:
        try:
            assert started.stdout is not None
            [pid] = map(int, started.stdout.readline().split())
            assert os.getpriority(os.PRIO_PROCESS, pid) == 19
            if len(os.sched_getaffinity(0)) > 1:
                assert len(os.sched_getaffinity(pid)) < len(os.sched_getaffinity(0))
            if _AUTOGROUP_ON.exists() and _AUTOGROUP_ON.read_text().strip() == "1":
                # How nice it is counts among its own session alone, so that is nice as well.
                assert os.getsid(pid) == pid
                assert Path(f"/proc/{pid}/autogroup").read_text().split()[-1] == "19"
            # In the middle of something: it does not come to see that nobody asks any more.
            os.kill(pid, signal.SIGSTOP)
        finally:
            started.kill()
        wait_for(lambda: not is_alive(pid), "end of what analysed", within_s=20)
