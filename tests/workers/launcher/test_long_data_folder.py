"""Tasks may share data through sockets on a node whose data folder has a long path."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.fake_portal import FakePortal, make_spec
from tests.workers.machines import Machine, eventually

PATH_LENGTH = 100
LEVELS = ("namespaces", "users", "shared", "none")
SCRIPT = """
import multiprocessing, os, socket, tempfile
import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.ones(1000) * index


def square(x):
    return x * x


def send(queue, done):
    queue.put(torch.ones(5))
    done.wait(60)


def pool(method):
    with multiprocessing.get_context(method).Pool(2) as workers:
        return workers.map(square, range(4))


def manager():
    with multiprocessing.Manager() as shared:
        values = shared.dict(a=1)
        return dict(values)


def loader(**options):
    return sum(float(batch.sum()) for batch in DataLoader(Rows(), batch_size=8, **options))


def shared_tensor():
    context = torch.multiprocessing.get_context("spawn")
    queue, done = context.Queue(), context.Event()
    process = context.Process(target=send, args=(queue, done))
    process.start()
    total = queue.get(timeout=60).sum().item()
    done.set()
    process.join()
    return total


def long_socket():
    # As long below TMPDIR as those of Ray.
    folder = tempfile.mkdtemp(prefix="session_2026-11-27_00-00-00_000000_12345_")
    path = os.path.join(folder, "sockets", "plasma_store")
    os.mkdir(os.path.dirname(path))
    socket.socket(socket.AF_UNIX).bind(path)


if __name__ == "__main__":
    for name, run in {
        "fork": lambda: pool("fork"),
        "forkserver": lambda: pool("forkserver"),
        "manager": manager,
        "two workers": lambda: loader(num_workers=2),
        "workers of a fork server": lambda: loader(
            num_workers=1, multiprocessing_context="forkserver"
        ),
        "shared tensor": shared_tensor,
        "long socket": long_socket,
    }.items():
        print("passed", name, run(), flush=True)
    print("<end>")
"""


# The two that shut tasks in most are in the gate.
@pytest.fixture(
    params=[*LEVELS[:2], *(pytest.param(level, marks=pytest.mark.slow) for level in LEVELS[2:])]
)
def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
    if request.param == "users" and os.getuid():
        pytest.skip("only root can run tasks as users of projects")
    portal = FakePortal()
    made = Machine(portal, "--isolation", request.param)
    made.folder.chmod(0o711)
    made.data_dir = made.folder / ("d" * (PATH_LENGTH - len(str(made.folder)) - 1))
    made.start().connected()
    yield made
    made.close()
    portal.close()


@pytest.mark.thorough
@pytest.mark.torch
def test_processes_of_a_task_share_data(machine: Machine) -> None:
    state = machine.portal.state
    snapshot = state.add_snapshot({"train.py": SCRIPT})
    key = state.want("task-1", make_spec("python", "train.py", snapshot=snapshot, procs=1))
    end = eventually(lambda: state.end_of(key), within_s=180)
    assert end.reason == "completed", f"{end}\n{state.log_of(key)[-3000:]}"
    assert state.log_of(key).count("passed") == 7
    state.forget(key)
    eventually(lambda: not _links_into(machine.data_dir), what="the removal of the short path")


def _links_into(folder: Path) -> list[Path]:
    # `os.path.realpath` accepts links that other processes remove meanwhile.
    links = [path for path in Path("/tmp").iterdir() if path.is_symlink()]  # noqa: S108
    return [link for link in links if Path(os.path.realpath(link)).is_relative_to(folder)]
