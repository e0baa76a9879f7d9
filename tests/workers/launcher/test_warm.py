"""Forks of a warm process that has imported torch: the hazards of FINDINGS, and what they cost."""

import json
import os
import signal
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.fake_portal import Key, make_spec
from tests.workers.machines import Site, eventually, is_alive
from workers.launcher.launch import StateFolder
from workers.launcher.processes import children

pytestmark = [pytest.mark.ranks, pytest.mark.torch]

DDP = """
import json, os, socket, time
started = time.time()
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def report(step):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        body = {"step": step, "rank": dist.get_rank()}
        door.sendto(json.dumps(body).encode(), os.environ["SLIPWAY_TASK_SOCKET"])

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    model(torch.ones(16, 8) * (dist.get_rank() + 1)).square().mean().backward()
    optimizer.step()
    report(step + 1)
answer = [parameter.detach().double().sum().item() for parameter in model.parameters()]
print(json.dumps({"answer": answer, "took": time.time() - started}))
dist.destroy_process_group()
print("<end>")
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site that keeps a process warm."""
    new_site = Site()
    new_site.portal.state.prewarm = ["torch"]
    new_site.portal.state.bump()
    wait_until_warm(new_site)
    yield new_site
    new_site.close()
    assert not new_site.portal.state.breaches


def wait_until_warm(site: Site) -> None:
    """Wait until a heartbeat says that a process is warm."""
    eventually(
        lambda: any(warm.state == "ready" for warm in site.portal.state.heartbeats[-1].warm),
        within_s=60,
        what="a warm process",
    )


def run_warm(site: Site, script: str, *, warm: str | None = "torch", **changes: Any) -> Key:
    """Start a script; warm unless said otherwise."""
    digest = site.portal.state.add_snapshot({"a.py": script})
    spec = make_spec("python", "a.py", snapshot=digest, warm=warm, **changes)
    return site.portal.state.want(site.new_name(), spec)


def was_warm(site: Site, key: Key) -> bool | None:
    """Whether the ranks were forked."""
    running = [report for report in site.portal.state.reports[key] if report.kind == "running"]
    return running[0].warm


def answer(site: Site, script: str, *, warm: bool = True, **changes: Any) -> Any:
    """The variable `answer` of a script."""
    full = f"import json\n{script}\nprint(json.dumps(answer))\nprint('<end>')\n"
    key = run_warm(site, full, **changes)
    end = site.end_of(key)
    assert end.reason == "completed", end
    assert was_warm(site, key) is warm
    return json.loads(site.whole_log(end).splitlines()[-1])


def warm_pid(site: Site) -> int | None:
    """The warm process; the shims forked from it look like it, but have left their mark."""
    assert site.machine.agent is not None
    tasks = (site.machine.data_dir / "tasks").glob("*")
    shims = {mark.pid for task in tasks if (mark := StateFolder(task / "state").shim())}
    pids = [pid for pid in children(site.machine.agent.pid) if is_alive(pid)]
    named = [pid for pid in pids if b"launcher.warm" in cmdline(pid)]
    return next((pid for pid in named if pid not in shims), None)


def cmdline(pid: int) -> bytes:
    """How a process was started."""
    with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123
        return file.read()


@pytest.mark.thorough
def test_two_ranks_train_and_agree_with_a_cold_start(site: Site) -> None:
    results = {}
    for package in ("torch", None):
        key = run_warm(site, DDP, warm=package, procs=2)
        end = site.end_of(key)
        assert end.reason == "completed", end
        assert was_warm(site, key) is (package == "torch")
        results[package] = [
            json.loads(site.whole_log(end, rank).splitlines()[-1])["answer"] for rank in range(2)
        ]
        reports = site.portal.state.reports[key]
        steps = [report.step for report in reports if report.step is not None]
        assert (steps[0], steps[-1]) == (1, 3)
    assert results["torch"] == results[None]
    assert results["torch"][0] == results["torch"][1]


def test_the_warm_process_has_one_thread_and_tells_its_memory(site: Site) -> None:
    pid = warm_pid(site)
    assert pid is not None
    assert len(os.listdir(f"/proc/{pid}/task")) == 1  # noqa: PTH208
    warm = site.portal.state.heartbeats[-1].warm[0]
    assert 100 << 20 < warm.memory_bytes < 1 << 30


def test_siblings_do_not_share_their_randomness(site: Site) -> None:
    script = (
        "import random, numpy, torch, os, uuid, tempfile, multiprocessing\n"
        "answer = [random.random(), numpy.random.rand(), torch.rand(1).item(),\n"
        " torch.initial_seed(), next(tempfile._get_candidate_names()), str(uuid.uuid4()),\n"
        " multiprocessing.current_process().authkey.hex()]\n"
    )
    one, other = answer(site, script), answer(site, script)
    assert not set(map(str, one)) & set(map(str, other))


@pytest.mark.parametrize("threads", ["1", "2"])
def test_threads_work_after_the_fork(site: Site, threads: str) -> None:
    script = (
        "import torch\n"
        "a = torch.randn(1200, 1200, requires_grad=True)\n"
        "(a @ a).exp().sum().backward()\n"
        "answer = [torch.get_num_threads(), bool(torch.isfinite(a.grad).any())]\n"
    )
    assert answer(site, script, env={"OMP_NUM_THREADS": threads})[0] == int(threads)


@pytest.mark.thorough
def test_data_loaders_with_workers_work(site: Site) -> None:
    script = (
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "data = TensorDataset(torch.arange(100.0))\n"
        "total = 0.0\n"
        "for method in ('fork', 'spawn'):\n"
        "    loader = DataLoader(data, 10, num_workers=2, multiprocessing_context=method)\n"
        "    if __name__ == '__main__':\n"
        "        total += sum(batch.sum().item() for (batch,) in loader)\n"
        "answer = total\n"
    )
    assert answer(site, script) == 2 * 4950


def test_nothing_of_the_warm_process_is_left_open(site: Site) -> None:
    script = (
        "import os\n"
        "answer = [os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')"
        " if os.path.exists(f'/proc/self/fd/{fd}')]\n"
        "answer = sorted(link.split(':')[0] for link in answer)\n"
    )
    assert answer(site, script) == ["/dev/null", "pipe", "pipe", "pipe"]


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "TORCH_LOGS", "LD_PRELOAD", "MKL_NUM_THREADS"])
def test_what_is_read_at_the_start_makes_a_cold_start(site: Site, name: str) -> None:
    key = run_warm(site, "print()", env={name: ""})
    site.end_of(key)
    assert was_warm(site, key) is False
    running = next(report for report in site.portal.state.reports[key] if report.kind == "running")
    assert name in running.message


def test_a_program_that_is_no_script_starts_cold(site: Site) -> None:
    key = site.portal.state.want(site.new_name(), make_spec("echo", "hi", warm="torch"))
    assert site.end_of(key).log_tail == "hi\n"
    assert was_warm(site, key) is False


def test_ranks_outlive_the_warm_process_and_a_new_one_comes(site: Site) -> None:
    key = run_warm(site, "import time\nprint('up', flush=True)\ntime.sleep(600)", procs=2)
    eventually(lambda: "up" in site.portal.state.log_of(key))
    processes = site.machine.processes(key)
    old = warm_pid(site)
    assert old is not None
    os.kill(old, signal.SIGKILL)
    eventually(lambda: warm_pid(site) not in {old, None}, what="another warm process")
    assert all(is_alive(pid) for pid in processes)
    assert answer(site, "import torch\nanswer = 1") == 1
    site.portal.state.stop(key)
    assert site.end_of(key).reason == "user"


def test_a_killed_shim_takes_forked_ranks_along(site: Site) -> None:
    key = run_warm(site, "import time\nprint('up', flush=True)\ntime.sleep(600)", procs=2)
    eventually(lambda: "up" in site.portal.state.log_of(key))
    processes = site.machine.processes(key)
    os.kill(processes[0], signal.SIGKILL)
    assert site.end_of(key).reason == "signal"
    eventually(lambda: not any(is_alive(pid) for pid in processes))


@pytest.fixture
def without_torch(tmp_path: Path) -> Iterator[Site]:
    """A site whose tasks have nothing but Python."""
    venv.create(tmp_path / "bare", with_pip=False)
    new_site = Site("--python", str(tmp_path / "bare" / "bin" / "python"))
    yield new_site
    new_site.close()
    assert not new_site.portal.state.breaches


def test_a_warm_process_that_does_not_come_up_costs_nothing_but_time(without_torch: Site) -> None:
    digest = without_torch.portal.state.add_snapshot({"a.py": "print('ran')"})
    spec = make_spec("python", "a.py", snapshot=digest, warm="torch")
    key = without_torch.portal.state.want(without_torch.new_name(), spec)
    assert without_torch.end_of(key).log_tail == "ran\n"
    assert was_warm(without_torch, key) is False
    assert "a warm torch process was discarded" in without_torch.machine.log.read_text()


@pytest.mark.thorough
def test_a_warm_process_that_never_comes_up_is_not_started_again_and_again(
    without_torch: Site,
) -> None:
    without_torch.portal.state.prewarm = ["torch"]
    without_torch.portal.state.bump()
    given_up = "a warm torch process was discarded"
    eventually(lambda: given_up in without_torch.machine.log.read_text(), within_s=30)
    beats = without_torch.portal.state.heartbeats
    later = len(beats) + 15
    eventually(lambda: len(beats) > later, within_s=30, what="three seconds of heartbeats")
    assert without_torch.machine.log.read_text().count(given_up) == 1


def test_a_peer_that_fails_first_is_named_although_all_fail(site: Site) -> None:
    script = (
        "import torch, torch.distributed as dist, time\n"
        "dist.init_process_group('gloo')\n"
        "if dist.get_rank() == 1:\n"
        "    raise RuntimeError('the culprit')\n"
        "dist.all_reduce(torch.ones(1))\n"
    )
    end = site.end_of(run_warm(site, script, procs=3))
    assert end.reason == "exit"
    assert "Rank 1" in end.message
    assert "the culprit" in end.message


RESUMED = """
import os, signal, torch
import slipway.distributed as dist
from slipway import job

data = torch.randn(64, 4, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 2
with dist.prepare(
    torch.nn.Linear(4, 2),
    lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    torch.nn.functional.cross_entropy,
) as trainer:
    print("began at", trainer.resume())
    for batch in trainer.shard(data, batch_size=8):
        trainer.step(batch)
        if trainer.steps == 4:
            trainer.save(wait=True)
        if trainer.steps == 6 and trainer.rank == 1 and job.current().attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
print("ended at", trainer.steps)
print("<end>")
"""


@pytest.mark.slow
def test_the_next_attempt_of_a_killed_job_goes_on_from_its_checkpoint(site: Site) -> None:
    state = site.portal.state
    digest = state.add_snapshot({"a.py": RESUMED})
    spec = make_spec(
        *("python", "a.py"), snapshot=digest, warm="torch", procs=2, persistent_key="resumed"
    )
    name = site.new_name()
    first = state.want(name, spec)
    killed = site.end_of(first)
    assert killed.reason == "signal", killed
    saved = [report.checkpoint for report in state.reports[first] if report.checkpoint]
    assert [(checkpoint.step, checkpoint.kept) for checkpoint in saved] == [(4, [4])]
    taken = [report.strategy for report in state.reports[first] if report.strategy]
    assert [(strategy.word, strategy.reason) for strategy in taken] == [
        ("ddp", "ddp is the default.")
    ]

    end = site.end_of(state.want(name, spec, epoch=2))

    assert end.reason == "completed", end
    assert site.whole_log(end).splitlines()[-2:] == ["began at 4", "ended at 8"]
