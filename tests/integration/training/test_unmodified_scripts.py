"""Scripts written for torchrun, Lightning, accelerate and plain Python run as they are."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.workers.fake_portal import GIB, Key, make_spec
from tests.workers.machines import Site, eventually

pytestmark = [pytest.mark.integration, pytest.mark.torch]

TORCHRUN = """
import os, sys, torch, torch.distributed as dist
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    sys.exit("the first attempt fails")
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
# Both ranks write to one pipe: a line in one piece is not torn by the other's.
restart = os.environ["TORCHELASTIC_RESTART_COUNT"]
sys.stdout.write(f"world {int(total.item())} restart {restart}\\n")
dist.destroy_process_group()
"""

# As the documentation of torchrun has it: everything comes from the environment.
BY_ENVIRONMENT = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
local_rank = int(os.environ["LOCAL_RANK"])
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 4)[local_rank::2]
for _ in range(4):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
print("world", dist.get_world_size(), "rank", dist.get_rank(), os.environ["TORCHELASTIC_RUN_ID"])
print("weights", round(model.module.weight.sum().item(), 4), flush=True)
dist.destroy_process_group()
"""

LIGHTNING = """
import lightning, torch
from torch.utils.data import DataLoader, TensorDataset

class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

lightning.seed_everything(1)
x = torch.randn(64, 4)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)
model = Line()
trainer.fit(model, data)
print("world", trainer.world_size, "rank", trainer.global_rank, "steps", trainer.global_step)
print("weights", round(model.layer.weight.sum().item(), 4))
"""

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
torch.manual_seed(1)
x = torch.randn(64, 4)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for a, b in data:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.mse_loss(model(a), b))
    optimizer.step()
print("world", accelerator.num_processes, "rank", accelerator.process_index)
weights = accelerator.unwrap_model(model).weight
print("weights", round(weights.sum().item(), 4), flush=True)
accelerator.end_training()
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Site]:
    """A node whose tasks find torch, Lightning and accelerate."""
    site = Site()
    yield site
    site.close()
    assert not site.portal.state.breaches


# Ranks that import torch themselves differ from warm ones in how they start alone.
_COLD_AND_WARM = pytest.mark.parametrize(
    "warm", [pytest.param(None, marks=pytest.mark.slow), "torch"]
)


def run_on(place: Site, script: str, *argv: str, **changes: Any) -> Any:
    """Run a script to its good end; answers the logs of its ranks."""
    digest = place.portal.state.add_snapshot({"train.py": script})
    resources = {"cpu_millis": 2000, "memory_bytes": 6 * GIB}
    spec = make_spec(*argv, snapshot=digest, resources=resources, **changes)
    key = place.portal.state.want(place.new_name(), spec)
    end = place.end_of(key, within_s=240)
    assert end.reason == "completed", (end, end.log_tail[-3000:])
    # The end of a task may overtake its last lines.
    return [whole_log(place, key, rank) for rank in range(changes.get("procs", 1))]


def whole_log(place: Site, key: Key, rank: int) -> str:
    """The log of a rank that has ended, once all of it has come."""
    written = place.machine.state(key).logs(rank)
    size = sum(path.stat().st_size for path in written.iterdir())
    eventually(lambda: place.portal.state.log_sizes[(*key, rank)] >= size, what="the whole log")
    return place.portal.state.log_of(key, rank)


def values(log: str, word: str) -> list[str]:
    """What follows a word at the start of lines."""
    return [line.removeprefix(f"{word} ") for line in log.splitlines() if line.startswith(word)]


@pytest.mark.thorough
def test_torchrun_restarts_its_own_ranks(place: Site) -> None:
    command = ("python", "-m", "torch.distributed.run", "--standalone")
    options = ("--nproc-per-node", "2", "--max-restarts", "1", "train.py")
    (log,) = run_on(place, TORCHRUN, *command, *options)
    assert values(log, "world") == ["2 restart 1"] * 2


@_COLD_AND_WARM
def test_a_script_for_torchrun_needs_no_torchrun(place: Site, warm: str | None) -> None:
    logs = run_on(place, BY_ENVIRONMENT, "python", "train.py", procs=2, warm=warm)
    worlds = [values(log, "world")[0] for log in logs]
    assert [line.rsplit(" ", 1)[0] for line in worlds] == ["2 rank 0", "2 rank 1"]
    assert worlds[0].split()[-1] == worlds[1].split()[-1]
    assert values(logs[0], "weights") == values(logs[1], "weights")


@pytest.mark.thorough
@_COLD_AND_WARM
def test_lightning_finds_its_ranks(place: Site, warm: str | None) -> None:
    logs = run_on(place, LIGHTNING, "python", "train.py", procs=2, warm=warm)
    assert [values(log, "world") for log in logs] == [
        ["2 rank 0 steps 8"],
        ["2 rank 1 steps 8"],
    ]
    assert values(logs[0], "weights") == values(logs[1], "weights")


@_COLD_AND_WARM
def test_accelerate_finds_its_ranks(place: Site, warm: str | None) -> None:
    logs = run_on(place, ACCELERATE, "python", "train.py", procs=2, warm=warm)
    assert [values(log, "world") for log in logs] == [["2 rank 0"], ["2 rank 1"]]
    assert values(logs[0], "weights") == values(logs[1], "weights")


@pytest.mark.thorough
def test_accelerate_may_launch_by_itself(place: Site) -> None:
    # On CPUs it starts more than one process only through MPI.
    command = ("python", "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1")
    options = ("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")
    (log,) = run_on(place, ACCELERATE, *command, *options, "train.py")
    assert values(log, "world") == ["1 rank 0"]


def test_plain_python_is_alone(place: Site) -> None:
    script = "import json, os\nprint(json.dumps([os.environ['WORLD_SIZE'], __name__]))"
    (log,) = run_on(place, script, "python", "train.py")
    assert json.loads(log) == ["1", "__main__"]
    assert os.environ.get("WORLD_SIZE") is None
