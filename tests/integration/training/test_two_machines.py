"""A job on two nodes that are two machines to each other: network namespaces with a link between.

The platform runs outside of both; each node's agent runs in its namespace and joins with a token.
"""

import signal
from pathlib import Path

import pytest

from tests.faults.live import Live
from tests.integration.training.cable import Cable, join
from tests.jobs import Jobs

pytestmark = [pytest.mark.integration, pytest.mark.torch]

_DDP = """
import os, socket, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(4, 1).double())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x = torch.randn(64, 4, dtype=torch.float64)[dist.get_rank()::dist.get_world_size()]
for _ in range(5):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
links = sorted(name for _, name in socket.if_nameindex() if name != "lo")
print("world", dist.get_world_size(), "node", os.environ["GROUP_RANK"], "links", *links)
print("weights", model.module.weight.sum().item(), flush=True)
dist.destroy_process_group()
"""


def test_two_nodes_train_one_model(live: Live, cable: Cable, tmp_path: Path) -> None:
    agents = [join(live, cable, name, tmp_path) for name in cable.spaces]
    with live.api() as api:
        jobs = Jobs(api)
        # A whole machine for each task: the two cannot end up on one.
        job = jobs.submit(_DDP, nodes=2, procs=1, tier="cpu-large")
        assert jobs.end_of(job, within_s=90)["state"] == "succeeded", jobs.look(job)
        logs = [jobs.whole_log(job, rank) for rank in (0, 1)]
    worlds = [log.splitlines()[-2] for log in logs]
    assert [line.split(" links")[0] for line in worlds] == ["world 2 node 0", "world 2 node 1"]
    assert worlds[0].split()[-1] != worlds[1].split()[-1]
    weights = [line for log in logs for line in log.splitlines() if line.startswith("weights")]
    assert len(weights) == 2
    assert weights[0] == weights[1]
    for agent in agents:
        agent.signal(signal.SIGTERM)
        assert agent.wait(20) == 0


# Rank 0 listens on its port, and the other one greets it across the link.
_MEET = """
import json, os, socket, time
rank, hosts = int(os.environ["RANK"]), json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"]
address, port = hosts[0].split(":")
if rank == 0:
    with socket.create_server(("", int(port))) as server:
        print(server.accept()[0].makefile().read(), flush=True)
while rank == 1:
    try:
        with socket.create_connection((address, int(port))) as peer:
            peer.sendall(b"hello " + ",".join(hosts).encode())
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
"""


@pytest.mark.thorough
def test_frameworks_find_the_ranks_of_both_nodes(live: Live, cable: Cable, tmp_path: Path) -> None:
    for name in cable.spaces:
        join(live, cable, name, tmp_path)
    with live.api() as api:
        jobs = Jobs(api)
        together = jobs.submit(_MEET, nodes=2, procs=1, tier="cpu-large")
        end = jobs.end_of(together, within_s=90)
        assert end["state"] == "succeeded", jobs.look(together)
        assert "None of the" not in end["explanation"]
        greeting = jobs.whole_log(together, 0)
        assert greeting.startswith("hello ")
        hosts = greeting.removeprefix("hello ").split(",")
        assert len({host.split(":")[0] for host in hosts}) == 2
        apart = jobs.submit("print('epoch 1')", nodes=2, procs=1, tier="cpu-large")
        end = jobs.end_of(apart, within_s=90)
        assert "None of the 2 ranks has connected to another" in end["explanation"]
