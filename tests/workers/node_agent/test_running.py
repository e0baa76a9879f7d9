"""One task from the wish to its end, by a real agent in a real process."""

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.workers.fake_portal import GIB, make_spec
from tests.workers.machines import Site, eventually
from workers.launcher.processes import kill_marked


def test_a_script_runs_and_its_story_arrives_in_order(site: Site) -> None:
    key = site.run("import sys\nprint('hello', sys.argv[1:])", "a", "b c")
    end = site.end_of(key)
    assert (end.reason, end.exit_code) == ("completed", 0)
    kinds = site.portal.state.kinds(key)
    assert kinds[0] == "starting"
    assert kinds[-2:] == ["running", "ended"]
    eventually(lambda: site.portal.state.log_of(key) == "hello ['a', 'b c']\n")
    assert end.cpu_seconds is not None
    assert end.memory_peak_bytes


def test_nothing_of_the_agent_reaches_a_task(site: Site) -> None:
    result = site.answer_of(
        "import os\n"
        "links = [os.readlink(f'/proc/self/fd/{fd}') for fd in sorted(os.listdir('/proc/self/fd'))"
        " if os.path.exists(f'/proc/self/fd/{fd}')]\n"
        "answer = {'env': dict(os.environ), 'cwd': os.getcwd(), 'links': links,"
        " 'session': os.getsid(0) == os.getpid(), 'group': os.getpgid(0) == os.getpid()}",
        env={"MINE": "yes", "SECRET": "s3cret"},
    )
    assert "AGENT_SECRET" not in result["env"]
    assert "PYTHONPATH" not in result["env"]
    assert (result["env"]["MINE"], result["env"]["SECRET"]) == ("yes", "s3cret")
    task = Path(result["cwd"]).parent
    assert task.parent == site.machine.data_dir / "tasks"
    assert result["cwd"] == str(task / "work")
    assert result["env"]["HOME"] == str(task / "home")
    assert len(result["env"]["TMPDIR"]) < 30, "sockets below it need room for their names"
    assert result["session"]
    assert result["group"]
    # Standard input, output, error, and a second name of the log for stacks.
    others = [link for link in result["links"] if link != "/dev/null" and "pipe:" not in link]
    assert others == [f"/proc/{others[0].split('/')[2]}/fd"] if others else True


def test_secrets_are_on_no_disk(site: Site) -> None:
    key = site.run("import time; time.sleep(60)", env={"SECRET": "needle-77"})
    eventually(lambda: "running" in site.portal.state.kinds(key))
    holding = [
        path
        for path in site.machine.data_dir.rglob("*")
        if path.is_file() and b"needle-77" in path.read_bytes()
    ]
    assert not holding
    assert "needle-77" not in site.machine.log.read_text()
    site.portal.state.forget(key)


def test_each_rank_finds_the_contract_of_torchrun(site: Site) -> None:
    script = (
        "import os, json\n"
        "print(json.dumps({k: v for k, v in os.environ.items()}))\nprint('<end>')\n"
    )
    end = site.run_to_end(script, procs=3)
    seen = [json.loads(site.whole_log(end, rank).splitlines()[0]) for rank in range(3)]
    assert [env["RANK"] for env in seen] == ["0", "1", "2"]
    assert [env["LOCAL_RANK"] for env in seen] == ["0", "1", "2"]
    for env in seen:
        assert env["WORLD_SIZE"] == env["LOCAL_WORLD_SIZE"] == "3"
        assert env["GROUP_RANK"] == "0"
        assert env["MASTER_ADDR"] == "127.0.0.1"
        assert env["TORCHELASTIC_RUN_ID"] == f"w-{end.task_id}"
        assert env["TORCHELASTIC_RESTART_COUNT"] == "0"
    assert len({env["MASTER_PORT"] for env in seen}) == 1


@pytest.mark.parametrize(
    ("script", "reason", "exit_code", "message"),
    [
        ("import sys; sys.exit(3)", "exit", 3, "status 3"),
        ("import sys; sys.exit('no data')", "exit", 1, "no data"),
        ("raise ValueError('bad learning rate')", "exit", 1, "ValueError: bad learning rate"),
        ("import nonexistent_package", "import_error", 1, "nonexistent_package"),
        ("raise MemoryError", "oom", 1, "ran out of memory"),
        ("raise OSError(28, 'No space left on device')", "disk_full", 1, "disk is full"),
        ("raise RuntimeError('CUDA out of memory. Tried to')", "gpu_oom", 1, "GPU memory"),
        ("raise RuntimeError('world size 3 is not 4')", "world_size", 1, "world"),
        ("import os; os.kill(os.getpid(), 11)", "signal", None, "SIGSEGV"),
        ("def f(:", "exit", 1, "SyntaxError"),
    ],
)
def test_an_end_is_explained(
    site: Site,
    script: str,
    reason: str,
    exit_code: int | None,
    message: str,
) -> None:
    end = site.run_to_end(script)
    assert (end.reason, end.exit_code) == (reason, exit_code)
    assert message in end.message


def test_a_missing_script_is_said_as_python_says_it(site: Site) -> None:
    digest = site.portal.state.add_snapshot({"a.py": ""})
    key = site.portal.state.want(site.new_name(), make_spec("python", "b.py", snapshot=digest))
    end = site.end_of(key)
    assert (end.reason, end.exit_code) == ("exit", 2)
    assert "can't open file" in end.log_tail


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["python", "-m", "package.tool", "x"], "package.tool tool.py x"),
        (["python", "-O", "flags.py"], "optimized"),
        (["python", "-c", "print('inline')"], "inline"),
        (["sh", "-c", "echo from ${0##*/}"], "from sh"),
        (["./run.sh"], "from the script"),
        (["python", "folder"], "folder main"),
    ],
)
def test_any_command_runs(site: Site, argv: list[str], expected: str) -> None:
    files = {
        "package/__init__.py": "",
        "package/tool.py": "import sys, os\n"
        "print(__spec__.name, os.path.basename(sys.argv[0]), *sys.argv[1:])",
        "flags.py": "print('optimized' if not __debug__ else 'plain')",
        "run.sh": "#!/bin/sh\necho from the script\n",
        "folder/__main__.py": "print('folder main')",
    }
    digest = site.portal.state.add_snapshot(files)
    if argv == ["./run.sh"]:
        argv = ["sh", "run.sh"]
    key = site.portal.state.want(site.new_name(), make_spec(*argv, snapshot=digest))
    end = site.end_of(key)
    assert end.reason == "completed", end
    eventually(lambda: site.portal.state.log_of(key).strip() == expected)


def test_the_first_rank_to_fail_is_named_and_the_others_go_within_a_second(site: Site) -> None:
    script = (
        "import os, time, signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "if os.environ['RANK'] == '2':\n"
        "    time.sleep(0.3)\n"
        "    raise KeyError('the second of three')\n"
        "time.sleep(600)\n"
    )
    key = site.run(script, procs=3)
    end = site.end_of(key)
    assert end.reason == "exit"
    assert "Rank 2" in end.message
    assert "the second of three" in end.message
    running = next(report for report in site.portal.state.reports[key] if report.kind == "running")
    assert end.at_unix_ms - running.at_unix_ms < 300 + 1500
    signals = {rank.rank: rank.signal for rank in end.ranks}
    assert signals[0] == signals[1] == signal.SIGKILL


def test_daemons_that_a_script_leaves_are_killed(site: Site) -> None:
    script = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.closerange(0, 20)\n"
        "        time.sleep(600)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
        "time.sleep(0.2)\n"
        # An orphan belongs to the first process of the sandbox, or to the shim where there is none.
        "parent = os.getppid() or 1\n"
        "children = open(f'/proc/{parent}/task/{parent}/children').read().split()\n"
        "answer = [int(pid) for pid in children if int(pid) != os.getpid()]\n"
    )
    daemons = site.answer_of(script, env={"DAEMON_MARK": "left-behind"})
    assert len(daemons) == 1
    assert not kill_marked(b"DAEMON_MARK=left-behind")


def test_memory_beyond_the_limit_ends_the_task_with_the_reason(site: Site) -> None:
    script = "blocks = []\nwhile True:\n    blocks.append(bytearray(16 * 1024 * 1024))\n"
    resources = {"cpu_millis": 1000, "memory_bytes": GIB // 8}
    end = site.run_to_end(script, resources=resources)
    assert end.reason == "oom", end
    assert end.memory_limit_bytes == GIB // 8
    assert end.memory_peak_bytes is not None
    assert end.memory_peak_bytes > GIB // 16


@pytest.mark.thorough
def test_a_hang_ends_with_the_stack_of_every_rank(site: Site) -> None:
    script = (
        "import os, time\n"
        "def waiting_for_a_peer():\n"
        "    time.sleep(600)\n"
        "print('started', flush=True)\n"
        "waiting_for_a_peer()\n"
    )
    end = site.run_to_end(script, procs=2, hang_after_s=1.0)
    assert end.reason == "hang"
    key = (end.task_id, end.epoch)
    log_of = site.portal.state.log_of
    eventually(lambda: all("in waiting_for_a_peer" in log_of(key, rank) for rank in range(2)))


def test_steps_are_reported_the_first_at_once(site: Site) -> None:
    script = (
        "import json, os, socket, time\n"
        "door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "for step in range(1, 200):\n"
        "    door.sendto(json.dumps({'step': step, 'rank': 0}).encode(),"
        " os.environ['SLIPWAY_TASK_SOCKET'])\n"
        "time.sleep(1.0)\n"
    )
    key = site.run(script)
    site.end_of(key)
    steps = [report.step for report in site.portal.state.reports[key] if report.kind == "progress"]
    assert steps[0] == 1
    assert steps[-1] == 199
    assert len(steps) <= 4


@pytest.mark.thorough
def test_use_is_sampled(site: Site) -> None:
    script = "block = bytearray(64 << 20)\nwhile True: pass"
    key = site.run(script)
    samples = site.portal.state.samples
    busy = eventually(
        lambda: [sample for sample in samples if sample.task_id == key[0] and sample.cpu_percent]
    )
    assert busy[-1].memory_bytes > 64 << 20
    site.portal.state.forget(key)


def test_the_interpreter_is_the_one_named(site: Site) -> None:
    result = site.answer_of("import sys\nanswer = [sys.executable, sys.prefix]")
    assert result == [sys.executable, sys.prefix]


def test_files_of_others_are_out_of_reach(site: Site) -> None:
    other = site.run_to_end("pass")
    journal = site.machine.state((other.task_id, other.epoch)).journal
    assert journal.exists()
    script = (
        "import os, pathlib\n"
        "def reach(path):\n"
        "    try:\n"
        "        pathlib.Path(path).read_bytes(); return True\n"
        "    except OSError: return False\n"
        f"answer = [reach({str(site.machine.data_dir / 'node.json')!r}),"
        f" reach({str(journal)!r}),"
        " reach('/etc/os-release'), reach('train.py')]\n"
    )
    assert site.answer_of(script) == [False, False, True, True]


TELLING = """
import json, os, socket, time

door = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
door.connect(os.environ["SLIPWAY_TASK_SOCKET"])

def tell(**message):
    door.send(json.dumps({**message, "rank": 0}).encode())

tell(strategy="zero2", reason="it does not\\nfit otherwise")
tell(strategy="ddp", reason="changed my mind")
tell(step=1)
tell(checkpoint={"step": 2, "size_bytes": 20, "kept": [2]})
tell(checkpoint={"step": 3, "size_bytes": -1})
tell(checkpoint={"step": 4, "size_bytes": 40, "kept": "all"})
tell(checkpoint=[])
tell(checkpoint={"step": 5, "size_bytes": 50, "kept": [2, 5]})
tell(checkpoint={"step": 6, "size_bytes": 60, "kept": [5, 6]})
tell(checkpoint={"step": 7, "size_bytes": 70, "kept": [6, 7]})
"""


def test_the_portal_learns_of_the_strategy_and_of_checkpoints(site: Site) -> None:
    key = site.run(TELLING)
    assert site.end_of(key).reason == "completed"
    reports = site.portal.state.reports[key]
    strategies = [report.strategy for report in reports if report.strategy]
    assert [strategy.word for strategy in strategies] == ["zero2"]
    assert strategies[0].reason == "it does not fit otherwise"
    saved = [(report.step, report.checkpoint) for report in reports if report.checkpoint]
    checkpoints = [
        (step, checkpoint.step, checkpoint.size_bytes, checkpoint.kept)
        for step, checkpoint in saved
    ]
    # The first at once; of those that follow in a hurry all that are kept in the end, in order.
    assert checkpoints == [(2, 2, 20, [2]), (6, 6, 60, [5, 6]), (7, 7, 70, [6, 7])]
